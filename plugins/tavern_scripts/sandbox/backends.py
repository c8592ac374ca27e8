"""Which sandbox scripts run in: those of plugins and of the host are tried out by order, and the first one that holds
is in force until something about them changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from cachetools import LRUCache

from tavern_host.context import HookResult, PluginContext
from tavern_scripts.api.scripts import (
    BackendReport,
    RunnableLanguage,
    ScriptBackend,
    ScriptBackendInfo,
    ScriptErrorType,
)
from tavern_scripts.policy.policy import Policy
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.choose import Candidate, Chosen, choose, host_candidates, refusal

HOOK = "tavern_register_script_backends"

_REMEMBERED = 8
"""How many sets of candidates are known at once: those of different languages differ."""

Key = tuple[object, ...]
Contributions = list[tuple[HookResult[list[ScriptBackendInfo]], ScriptBackendInfo]]


@dataclass(frozen=True)
class _Settled:
    """What was found out about candidates; `every`: about all of them."""

    chosen: Chosen | None
    reports: list[BackendReport]
    every: bool


class Sandboxes:
    """The sandboxes of one host."""

    def __init__(self, context: PluginContext, policy: Callable[[], Policy]) -> None:
        self._context = context
        self._policy = policy
        self._settling = asyncio.Lock()
        self._settled: LRUCache[Key, _Settled] = LRUCache(_REMEMBERED)
        self._collected: tuple[tuple[int, int], Contributions] = ((-1, -1), [])

    async def chosen(self, language: RunnableLanguage | None = None) -> Chosen:
        """Return the sandbox that is in force for a language, or for any program of this machine. Raises `Refused`, a
        `SecurityError`, where none holds."""
        settled = await self._settle(language, every=False)
        if settled.chosen is None:
            raise Refused(ScriptErrorType.SECURITY, refusal(settled.reports))
        return settled.chosen

    async def interpreter(self, language: RunnableLanguage) -> str | None:
        """Return the interpreter of a language in the sandbox in force; None for a program of this machine, and where
        no sandbox holds."""
        if any(language in info.interpreters for _, info in await self._contributed()):
            settled = await self._settle(language, every=False)
            return settled.chosen.interpreters.get(language) if settled.chosen is not None else None
        return None

    async def reports(self) -> list[BackendReport]:
        """Return a report on each sandbox; all are tried out for it. The one in force for any language is
        `chosen`."""
        found: dict[str, list[BackendReport]] = {}
        for language in (None, *get_args(RunnableLanguage)):
            reports = (await self._settle(language, every=True)).reports
            for name in dict.fromkeys(report.name for report in reports):
                same = [report for report in reports if report.name == name]
                if name not in found or any(report.chosen for report in same):
                    found[name] = same
        return [report for reports in found.values() for report in reports]

    async def _settle(self, language: RunnableLanguage | None, *, every: bool) -> _Settled:
        policy = self._policy()
        contributed = [one for one in await self._contributed() if _candidate(*one).runs(language)]
        parts = [(by.plugin, by.code, by.settings, info.name, info.handler, info.order) for by, info in contributed]
        key = (language == "wasm", policy.allow_degraded, policy.unsafe_unsandboxed, *parts)
        async with self._settling:
            settled = self._settled.get(key)
            if settled is None or (every and not settled.every):
                own = host_candidates(
                    allow_degraded=policy.allow_degraded,
                    allow_unsandboxed=policy.unsafe_unsandboxed,
                    log=self._context.log,
                )
                candidates = [*(_candidate(*one) for one in contributed), *own]
                usable = [candidate for candidate in candidates if candidate.runs(language)]
                chosen, reports = await choose(usable, every=every)
                settled = self._settled[key] = _Settled(chosen, reports, every)
                self._tell(settled)
            return settled

    async def _contributed(self) -> Contributions:
        """Return the sandboxes of plugins, each with what its plugin answered; with other settings it may answer
        something else."""
        hooks = self._context.hooks
        revision = (hooks.revision, self._context.settings.revision)
        if self._collected[0] != revision:
            answers = await hooks.collect(HOOK) if hooks.implemented(HOOK) else []
            self._collected = (revision, [(answer, info) for answer in answers for info in answer.value])
        return self._collected[1]

    def _tell(self, settled: _Settled) -> None:
        for report in settled.reports:
            if report.languages and report.reason and not report.usable:
                self._context.log.warning("the sandbox %s is not used: %s", report.name, report.reason)
        if settled.chosen is None:
            self._context.log.warning("%s", refusal(settled.reports))
        elif settled.chosen.weaker:
            weaker = "; ".join(settled.chosen.weaker)
            self._context.log.warning("scripts run in the sandbox %s: %s", settled.chosen.name, weaker)


def _candidate(answer: HookResult[list[ScriptBackendInfo]], info: ScriptBackendInfo) -> Candidate:
    def make() -> ScriptBackend:
        backend: ScriptBackend = answer.open(info.handler)
        return backend

    return Candidate(f"{answer.plugin}:{info.name}", make, info.order, interpreters=info.interpreters)
