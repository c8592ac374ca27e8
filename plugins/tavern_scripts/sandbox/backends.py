"""Which sandbox scripts run in: those of plugins and of the host are tried out by order, and the first one that holds
is in force until something about them changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tavern_host.context import HookResult, PluginContext
from tavern_scripts.api.scripts import BackendReport, ScriptBackend, ScriptBackendInfo, ScriptErrorType
from tavern_scripts.policy.policy import Policy
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.choose import Candidate, Chosen, choose, host_candidates, refusal

HOOK = "tavern_register_script_backends"

Key = tuple[object, ...]


@dataclass(frozen=True)
class _Settled:
    """What was found out about the candidates that `key` identifies; `every`: about all of them."""

    key: Key
    chosen: Chosen | None
    reports: list[BackendReport]
    every: bool


class Sandboxes:
    """The sandboxes of one host."""

    def __init__(self, context: PluginContext, policy: Callable[[], Policy]) -> None:
        self._context = context
        self._policy = policy
        self._settling = asyncio.Lock()
        self._settled: _Settled | None = None
        self._collected: tuple[int, list[HookResult[list[ScriptBackendInfo]]]] = (-1, [])

    async def chosen(self) -> Chosen:
        """Return the sandbox that is in force. Raises `Refused`, a `SecurityError`, where none holds."""
        settled = await self._settle(every=False)
        if settled.chosen is None:
            raise Refused(ScriptErrorType.SECURITY, refusal(settled.reports))
        return settled.chosen

    async def reports(self) -> list[BackendReport]:
        """Return what is found out about each sandbox; all are tried out for it."""
        return list((await self._settle(every=True)).reports)

    async def _settle(self, *, every: bool) -> _Settled:
        key, candidates = await self._candidates()
        async with self._settling:
            settled = self._settled
            if settled is None or settled.key != key or (every and not settled.every):
                chosen, reports = await choose(candidates(), every=every)
                settled = self._settled = _Settled(key, chosen, reports, every)
                self._tell(settled)
            return settled

    async def _candidates(self) -> tuple[Key, Callable[[], list[Candidate]]]:
        """Return what could be used, and what shows that it is still the same."""
        policy = self._policy()
        contributed = [
            (contribution, info) for contribution in await self._contributed() for info in contribution.value
        ]
        parts = [(c.plugin, c.code, info.name, info.handler, info.order) for c, info in contributed]
        key = (policy.allow_degraded, policy.unsafe_unsandboxed, *parts)

        def candidates() -> list[Candidate]:
            own = host_candidates(
                allow_degraded=policy.allow_degraded,
                allow_unsandboxed=policy.unsafe_unsandboxed,
                log=self._context.log,
            )
            return [*(_contributed(contribution, info) for contribution, info in contributed), *own]

        return key, candidates

    async def _contributed(self) -> list[HookResult[list[ScriptBackendInfo]]]:
        hooks = self._context.hooks
        if self._collected[0] != hooks.revision:
            revision = hooks.revision
            self._collected = (revision, await hooks.collect(HOOK) if hooks.implemented(HOOK) else [])
        return self._collected[1]

    def _tell(self, settled: _Settled) -> None:
        if settled.chosen is None:
            self._context.log.warning("%s", refusal(settled.reports))
        elif settled.chosen.weaker:
            weaker = "; ".join(settled.chosen.weaker)
            self._context.log.warning("scripts run in the sandbox %s: %s", settled.chosen.name, weaker)


def _contributed(contribution: HookResult[list[ScriptBackendInfo]], info: ScriptBackendInfo) -> Candidate:
    def make() -> ScriptBackend:
        backend: ScriptBackend = contribution.open(info.handler)
        return backend

    return Candidate(f"{contribution.plugin}:{info.name}", make, info.order)
