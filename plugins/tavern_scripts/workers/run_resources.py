"""What a run needs beside its script: the way to the hosts that it was granted, and its dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Misconfigured
from tavern_scripts.api.scripts import (
    PackagedProgram,
    ProgramPackage,
    SandboxMount,
    ScriptBackend,
    ScriptErrorType,
    ScriptLanguage,
)
from tavern_scripts.environments.environments import Environment, Environments
from tavern_scripts.environments.in_sandbox import environments_in, record_connection
from tavern_scripts.environments.manifests import Manifest, Manifests
from tavern_scripts.environments.programs import manifest_of, program_of
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_access import ProxyAccess, proxy_access
from tavern_scripts.network.proxy_limits import Connection, ConnectionBudget, ProxyLimits
from tavern_scripts.policy.languages import Interpreters
from tavern_scripts.policy.planner import MAX_CODE, Plan
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.layout import installation
from tavern_scripts.workers.launches import RunExtras

KEEP_DAYS = "keepEnvironmentsDays"
"""The setting that says after how many days without use the dependencies of scripts are removed."""

_DAY = 86_400.0

Progress = Callable[[str], None]


class RunResources:
    """Makes them; what it opens for a run is closed with the stack of the run."""

    def __init__(self, context: PluginContext, interpreters: Interpreters) -> None:
        self._context = context
        self._interpreters = interpreters
        self._budget = ConnectionBudget()
        self._kept: tuple[ScriptBackend, bool, Manifests, Environments] | None = None
        self._is_pruned = False

    async def of(
        self, plan: Plan, folder: Path, backend: ScriptBackend, stack: AsyncExitStack, call: CallContext, say: Progress
    ) -> RunExtras:
        """Return the environment, mounts and proxy of a run; `folder` is where its script lies. Raises `Refused`."""
        if plan.granted.hosts and plan.interpreter.inside and plan.interpreter.language != "python":
            message = f"{plan.called} gets to no hosts: the way there is a program of Python, which its sandbox has not"
            raise Refused(ScriptErrorType.SECURITY, f"{message}; ask for no hosts")
        environment = await self._environment(plan, folder, backend, say)
        way = await self.network(plan.granted.hosts, plan.called, stack, call) if plan.granted.hosts else None
        mounts = [*(environment.mounts if environment is not None else ()), *(way.mounts if way is not None else ())]
        if way is not None and way.prefix[0] != plan.interpreter.program and not plan.interpreter.inside:
            needed = installation(plan.interpreter.program)
            mounts += [SandboxMount(target=place, source=place) for place in needed]
        return RunExtras(
            environment={
                **(environment.variables if environment is not None else {}),
                **(way.environment if way is not None else {}),
            },
            mounts=mounts,
            prefix=way.prefix if way is not None else (),
            proxy=way.proxy if way is not None else None,
        )

    async def network(self, hosts: Sequence[str], called: str, stack: AsyncExitStack, call: CallContext) -> ProxyAccess:
        """Open a run's own proxy. Inside, a relay is started before the program, in the host's own Python."""

        def record(connection: Connection) -> None:
            record_connection(self._context, connection, called, call)

        proxy = Proxy(hosts, ProxyLimits(), record, budget=self._budget, upstream=self._context.http.proxy)
        path = await stack.enter_async_context(proxy)
        return proxy_access(path, (await self._interpreters.find("python")).program)

    async def program(self, wanted: ProgramPackage, backend: ScriptBackend, *, build_scripts: bool) -> PackagedProgram:
        """Install the package of a program where it is not there yet. Raises `InvalidInput`, `Misconfigured`."""
        _, environments = self._environments(build_scripts, backend)
        self._prune(environments)
        try:
            python = await self._interpreters.find("python")
            interpreter = python if wanted.registry == "pypi" else await self._interpreters.find("nodejs")
            if interpreter.inside:
                raise Misconfigured(f"{wanted.package} is for programs of this machine; the sandbox brings its own")
            built = await environments.ready(manifest_of(wanted), interpreter, self._context.log.info, python=python)
        except Refused as refused:
            raise Misconfigured(str(refused), log=refused.error.details) from None
        return await asyncio.to_thread(program_of, wanted, built.path, interpreter.program)

    async def _environment(self, plan: Plan, folder: Path, backend: ScriptBackend, say: Progress) -> Environment | None:
        """Return the environment with the dependencies of a script, or None where it has none. Raises `Refused`."""
        language = plan.interpreter.language
        if language == "wasm":
            return None
        manifests, environments = self._environments(plan.policy.build_scripts, backend)
        if plan.script is None:
            manifest = manifests.find(language, None, plan.request.code)
        else:
            manifest = await asyncio.to_thread(_manifest, manifests, language, plan.program.name, folder)
        if manifest is None:
            return None
        if plan.interpreter.inside:
            message = f"{plan.called} asks for packages, and the sandbox for {language} brings its own: add them there"
            raise Refused(ScriptErrorType.DEPENDENCY, message)
        self._prune(environments)
        python = None if plan.interpreter.language == "python" else await self._interpreters.find("python")
        return await environments.ready(manifest, plan.interpreter, say, python=python)

    def _environments(self, build_scripts: bool, backend: ScriptBackend) -> tuple[Manifests, Environments]:
        """Return the finder and the builder of dependencies, the same while sandbox and policy stay the same."""
        kept = self._kept
        if kept is None or kept[0] is not backend or kept[1] != build_scripts:
            folder = self._context.data_dir / "environments"
            environments = environments_in(self._context, folder, backend, self._budget, build_scripts=build_scripts)
            kept = self._kept = (backend, build_scripts, Manifests(build_scripts=build_scripts), environments)
        return kept[2], kept[3]

    def _prune(self, environments: Environments) -> None:
        """Remove what nobody has used for long, once in the life of a host."""
        if self._is_pruned:
            return
        self._is_pruned = True
        days = float(self._context.settings.get(KEEP_DAYS, 30))
        self._context.tasks.spawn(environments.prune(days * _DAY), name="remove dependencies that nobody uses")


def _manifest(manifests: Manifests, language: ScriptLanguage, name: str, folder: Path) -> Manifest | None:
    """Return the manifest of a script's dependencies, or None where it has none. Blocking."""
    with (folder / name).open("rb") as file:
        code = file.read(MAX_CODE).decode("utf-8", "replace")
    return manifests.find(language, folder, code, name)
