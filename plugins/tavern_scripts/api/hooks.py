"""The hook that the sandbox's plugin calls: other kinds of sandboxes."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.hooks import hookspec
from tavern_scripts.api.scripts import ScriptBackendInfo


@hookspec(
    permission="hook:server:scripts:register-backends",
    level="override",
    policy="collect",
    caller="scriptExecution",
    description="Run everybody's scripts in a sandbox of its own making, in place of the host's.",
    example="return [ScriptBackendInfo(name='acme', handler='acme_plugin.sandbox:AcmeSandbox')]",
)
def tavern_register_script_backends(context: PluginContext) -> list[ScriptBackendInfo]:
    """Return kinds of sandboxes; each proves before it is used that it isolates."""
