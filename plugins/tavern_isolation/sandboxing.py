"""Starts the children of one plugin in the sandbox of this machine, each with the plugin's packages and grants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import replace
from socket import socket
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.manifest import Runtime
from tavern_host.runtime.source import PluginSource
from tavern_isolation.carriers import Carrier, SandboxedProcess
from tavern_isolation.environment import Builds, Environment, environment_of, environments_in
from tavern_isolation.launch import PACKAGES, hand_over, launch_of, user_of
from tavern_isolation.package_check import check_against
from tavern_scripts.api.environments import PackageBuilder, package_builder
from tavern_scripts.api.sandbox import machine_sandbox, reaching
from tavern_scripts.api.scripts import SandboxLaunch, SandboxOutput, no_input

_BUILDING = "extensions.tavern-scripts.buildScripts"
_ADVISORIES = "extensions.tavern-operations.advisoryDatabase"

_KEEP_DAYS = "extensions.tavern-scripts.keepEnvironmentsDays"
_KEPT, _DAY = 30, 86_400.0

_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


class _HostAudit:
    """The audit log as the host itself writes it: most plugins may record nothing there."""

    def __init__(self, context: PluginContext) -> None:
        self._plugin = context.plugin
        self._log = context.audit._log  # type: ignore[attr-defined]

    def record(self, action: str, *, subject: str, details: Mapping[str, JsonValue], call: CallContext) -> int:
        """Record what was done for the plugin, in the call's name."""
        number: int = self._log.record(
            action, actor=call.principal, subject=subject, details=details, secrets=frozenset(), plugin=self._plugin
        )
        return number


class _Machine:
    """The sandbox of this machine for builds, which is tried out when one begins."""

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncGenerator[SandboxOutput, None]:
        """Run a program; see `api.scripts.ScriptBackend`. Raises `ServiceUnavailable` where no sandbox holds."""
        sandbox = await machine_sandbox()
        outputs: Any = sandbox.backend.run(launch, stdin)
        async with aclosing(outputs):
            async for output in outputs:
                yield output


class Sandboxing:
    """The sandbox of one plugin. `environment` is there once a child was started. `setting` says what the operator says
    for the full key of a setting."""

    def __init__(self, source: PluginSource, context: PluginContext, setting: Callable[[str], Any]) -> None:
        self._source = source
        self._needs = source.needs or Runtime()
        self._context = context
        self._setting = setting
        self._held = ExitStack()
        self.environment: Environment | None = None

    async def prepare(self) -> Environment:
        """Make ready what takes long, and return the plugin's packages. Raises what making the environment raises."""
        source, context = self._source, self._context
        folder = environments_in(context)
        machine: Any = _Machine()  # a build runs it, and does nothing else with it
        builder = package_builder(self._recording(), folder, machine, build_scripts=self._setting(_BUILDING) is True)
        builds = Builds(builder, self._report, check_against(context, source.name, self._setting(_ADVISORIES)))
        environment = await environment_of(
            source.name,
            root=source.root if source.module is None else None,
            reviewed=source.reviewed,
            distribution=source.distribution,
            path=source.path,
            python=self._needs.python,
            builds=builds,
        )
        if self.environment is None or self.environment.built != environment.built:
            await asyncio.to_thread(self._hold, environment, builder)
            days = self._setting(_KEEP_DAYS)
            await builder.prune((_KEPT if days is None else days) * _DAY)
        self.environment = environment
        return environment

    def _hold(self, environment: Environment, builder: PackageBuilder) -> None:
        """Keep what was built from being removed until the plugin is unloaded. Blocking."""
        if self.environment is None:
            self._context._when_unloaded("environment", "packages", self._held.close)
        for folder in environment.built:
            self._held.enter_context(builder.held(folder))

    def _recording(self) -> PluginContext:
        """The plugin's context, with which its connections are recorded."""
        return replace(self._context, audit=_HostAudit(self._context))  # type: ignore[arg-type]

    def _report(self, line: str) -> None:
        self._context.log.info("its packages: %s", line)

    def prove(self) -> None:
        """Have the sandbox tried out meanwhile, for a plugin whose process is not needed yet."""

        async def proof() -> None:
            try:
                await machine_sandbox()
            except ServiceUnavailable as error:
                self._context.hooks.report(self._source.name, f"its process cannot be started: {error.message}")

        self._context.tasks.spawn(proof(), name="proof of its sandbox")

    def inside(self) -> str | None:
        """The plugin's folder as its child sees it: a package is among all others there."""
        source = self._source
        if source.module is not None:
            return f"{PACKAGES}/{source.module.replace('.', '/')}"
        return None if source.root is None else str(source.root)

    async def carry(self, end: socket) -> Carrier:
        """Start a child. Raises as `prepare`, `ServiceUnavailable` where no sandbox holds, and `InvalidInput` for what
        the manifest asks for and cannot be given."""
        environment, sandbox = await self.prepare(), await machine_sandbox()
        source, context = self._source, self._context
        user = user_of(context.project.id, source.name)
        await asyncio.to_thread(hand_over, context.data_dir, user)
        launch = await asyncio.to_thread(
            launch_of,
            self._needs,
            environment,
            end.fileno(),
            own=source.root if source.module is None else None,
            data=context.data_dir,
            project=context.project,
            user=user,
        )
        held = AsyncExitStack()
        launch = await held.enter_async_context(reaching(launch, self._needs.network, self._recording()))
        proxies = {name: value for name, value in launch.environment.items() if name.lower() in _PROXIES}
        outputs = sandbox.backend.run(launch, no_input())
        return await SandboxedProcess.begun(sandbox.name, outputs, proxies, held)  # type: ignore[arg-type]
