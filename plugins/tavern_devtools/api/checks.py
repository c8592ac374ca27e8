"""The service that has plugins checked."""

from __future__ import annotations

from pydantic import Field

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model


class PluginFindings(Model):
    """What was found wrong with one plugin."""

    plugin: str
    findings: list[Finding] = Field(default_factory=list)


class PluginChecks(ServiceInterface, name="pluginChecks"):
    """What is wrong with plugins, as those say that their contributions are for."""

    @acts("pluginChecks:check", "Have the files of plugins looked at, and see what is wrong in them.")
    async def check(self, plugin: CheckedPlugin, *, call: CallContext | None = None) -> list[Finding]:
        """Return everything that is wrong with what a plugin contributes."""

    @acts("pluginChecks:check", "Have the files of plugins looked at, and see what is wrong in them.")
    async def check_loaded(self, *, call: CallContext | None = None) -> list[PluginFindings]:
        """Check every loaded plugin that is not first-party, and report the errors against it."""


PLUGIN_CHECKS = ServiceKey(PluginChecks)
