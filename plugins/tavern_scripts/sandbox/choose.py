"""Chooses the sandbox that is in force: the first, in order, whose properties all hold when they are tried out. It
chooses nothing where none holds; the caller refuses to run then."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import Logger
from pathlib import Path
from typing import Any

from tavern_host.common.system import NEEDS_LINUX
from tavern_host.contracts.errors import TavernError
from tavern_scripts.api.scripts import BackendReport, IsolationCheck, RunnableLanguage, ScriptBackend
from tavern_scripts.sandbox.bubblewrap import Bubblewrap
from tavern_scripts.sandbox.executables import INSTALL_BUBBLEWRAP, INSTALL_SETPRIV, find_bubblewrap, find_setpriv
from tavern_scripts.sandbox.supervised import Supervised

BUBBLEWRAP, BUBBLEWRAP_ROOT, LANDLOCK, UNSANDBOXED = "bubblewrap", "bubblewrap-root", "landlock", "unsandboxed"


@dataclass(frozen=True)
class Candidate:
    """A sandbox that could be used: `make` makes it, or is None where `reason` says why it cannot be used at all.
    `interpreters` are those that it has inside; with none it runs the programs of this machine."""

    name: str
    make: Callable[[], ScriptBackend] | None
    order: int = 50
    reason: str = ""
    hint: str = ""
    interpreters: Mapping[str, str] = field(default_factory=dict)

    def runs(self, language: RunnableLanguage | None) -> bool:
        """Return whether it runs scripts in a language; None is for any program of this machine."""
        return language in self.interpreters if self.interpreters else language != "wasm"

    def report(self, **found: Any) -> BackendReport:
        """Return the findings about it."""
        return BackendReport(name=self.name, languages=[*self.interpreters], hint=self.hint, **found)


@dataclass(frozen=True)
class Chosen:
    """The sandbox in force; `weaker` says what it does not enforce that the best one does."""

    name: str
    backend: ScriptBackend
    weaker: tuple[str, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)


def host_candidates(*, allow_degraded: bool, allow_unsandboxed: bool, log: Logger) -> list[Candidate]:
    """Return the sandboxes of the host in their order; the last two only where the operator allows them."""
    if NEEDS_LINUX:
        return [Candidate(name, None, reason=NEEDS_LINUX) for name in (BUBBLEWRAP, LANDLOCK, UNSANDBOXED)]
    is_root = os.geteuid() == 0
    return [
        *_bubblewraps(is_root),
        Candidate(
            LANDLOCK,
            (lambda: Supervised(is_limited=True)) if allow_degraded and not is_root else None,
            120,
            "it is for an ordinary user, and this is root" if is_root else "it is weaker, and not allowed",
            "" if is_root else "The operator can allow it with extensions.tavern-scripts.allowDegraded.",
        ),
        Candidate(
            UNSANDBOXED,
            (lambda: Supervised(is_limited=False, log=log)) if allow_unsandboxed else None,
            900,
            "it is no sandbox, and not allowed",
        ),
    ]


async def choose(candidates: Sequence[Candidate], *, every: bool = False) -> tuple[Chosen | None, list[BackendReport]]:
    """Try out the candidates by order until one holds (with `every`, all of them, but what is no sandbox) and return
    it, if any, with what was found out about each."""
    chosen: Chosen | None = None
    reports = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.order):
        if candidate.make is None or (chosen is not None and (not every or candidate.name == UNSANDBOXED)):
            reason = candidate.reason if candidate.make is None else "not tried: another one is in force"
            reports.append(candidate.report(usable=False, reason=reason))
            continue
        backend, report = await _try_out(candidate, candidate.make)
        if backend is not None and chosen is None:
            weaker = tuple(getattr(backend, "weaker", ()))
            chosen = Chosen(candidate.name, backend, weaker, candidate.interpreters)
            report = report.model_copy(update={"chosen": True})
        reports.append(report)
    return chosen, reports


def refusal(reports: Sequence[BackendReport]) -> str:
    """Return why no script is run on this machine, and what to do."""
    if not reports:
        return "no script of this language is run: no plugin that is loaded brings a sandbox for it"
    tried = "; ".join(f"{report.name}: {report.reason}" for report in reports if report.reason)
    hints = " ".join(dict.fromkeys(report.hint for report in reports if report.hint))
    return f"no script is run: no sandbox holds on this machine ({tried}). {hints}".strip()


def _bubblewraps(is_root: bool) -> list[Candidate]:
    name = BUBBLEWRAP_ROOT if is_root else BUBBLEWRAP
    order = 110 if is_root else 100
    setpriv = find_setpriv() if is_root else None
    if is_root and setpriv is None:
        return [Candidate(name, None, order, "setpriv was not found below /usr", INSTALL_SETPRIV)]
    programs = find_bubblewrap()
    if not programs:
        return [Candidate(name, None, order, "bubblewrap was not found", INSTALL_BUBBLEWRAP)]

    def maker(program: Path) -> Callable[[], ScriptBackend]:
        return lambda: Bubblewrap(program, setpriv=setpriv)

    return [Candidate(name, maker(program), order, hint=INSTALL_BUBBLEWRAP) for program in programs]


async def _try_out(
    candidate: Candidate, make: Callable[[], ScriptBackend]
) -> tuple[ScriptBackend | None, BackendReport]:
    checks: list[IsolationCheck] = []
    try:
        backend = make()
        checks = await backend.prove()
    except TavernError as error:
        reason = str(error)
    except Exception as error:  # that of another plugin may fail in any way
        reason = f"it could not be tried out: {type(error).__name__}: {error}"
    else:
        broken = [f"{check.name} ({check.observed})" for check in checks if not check.holds]
        if not broken:
            return backend, candidate.report(usable=True, checks=checks).model_copy(update={"hint": ""})
        reason = f"these do not hold: {', '.join(broken)}"
    return None, candidate.report(usable=False, reason=reason, checks=checks)
