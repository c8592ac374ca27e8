"""The report of a check: findings become problems, as many as a person can use and none larger than that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.names import LONGEST, did_you_mean
from tavern_host.contracts.plugins import PluginInfo, withheld
from tavern_workflows.api.workflows import WorkflowProblem

MOST_PROBLEMS = 1000
"""How many problems a report names; a last one says how many more there are."""

MAX_NAME = 200
MAX_MESSAGE = 2000
"""How many characters of a name and of a message are shown."""

_EFFORT = 5_000_000
"""How many pairs of characters are compared for one report's guesses."""


class Finding(NamedTuple):
    """Something that is wrong, at a place in the document."""

    path: tuple[str | int, ...]
    message: str
    node: str | None = None
    slot: str | None = None
    severity: str = "error"

    @property
    def is_error(self) -> bool:
        """Whether a run cannot succeed."""
        return self.severity == "error"


def report(findings: Iterable[Finding]) -> list[WorkflowProblem]:
    """Return the findings as problems, in their order; of too many the errors first, and a last one that counts."""
    errors: list[tuple[int, Finding]] = []
    warnings: list[tuple[int, Finding]] = []
    count = error_count = 0
    for place, finding in enumerate(findings):
        count += 1
        error_count += finding.is_error
        kept = errors if finding.is_error else warnings
        if len(kept) < MOST_PROBLEMS:
            kept.append((place, finding))
    chosen = sorted([*errors, *warnings[: MOST_PROBLEMS - len(errors)]], key=lambda item: item[0])
    problems = [_problem(finding) for _, finding in chosen]
    if count > len(chosen):
        rest = count - len(chosen)
        message = "1 more problem is not shown" if rest == 1 else f"{rest:,} more problems are not shown"
        severity = "error" if error_count > len(errors) else "warning"
        problems.append(WorkflowProblem(path="$", message=message, severity=severity))
    return problems


def quoted(name: str) -> str:
    """Return a name in quotes, for a message."""
    return repr(name) if len(name) <= MAX_NAME else f"{name[:MAX_NAME]!r}…"


def short(name: str) -> str:
    """Return a name as it is, or its beginning, for a message."""
    return _cut(name, MAX_NAME)


class Hints:
    """Guesses which names were meant, until that has taken as much work as one report is worth."""

    def __init__(self, plugins: Sequence[PluginInfo] = ()) -> None:
        self._plugins = plugins
        self._left = _EFFORT
        self._known: dict[tuple[str, int], str] = {}
        self._sizes: dict[int, tuple[Collection[str], int]] = {}

    def __call__(self, name: str, names: Collection[str]) -> str:
        """Return ` (did you mean x or y?)`, or nothing."""
        key = (name, id(names))
        if key not in self._known:
            size = self._size(names) * len(name)
            if len(name) > LONGEST or size > self._left:
                return ""
            self._left -= size
            self._known[key] = did_you_mean(name, names)
        return self._known[key]

    def of_type(self, name: str, names: Collection[str]) -> str:
        """Return which type was meant, and why the plugin of a node type does not offer it, each or nothing."""
        return self(name, names) + withheld(name, self._plugins)

    def _size(self, names: Collection[str]) -> int:
        """Return how many characters the names have; they are kept, so that their identity stays theirs."""
        if id(names) not in self._sizes:
            self._sizes[id(names)] = (names, sum(len(n) for n in names if len(n) <= LONGEST) + len(names))
        return self._sizes[id(names)][1]


def _problem(finding: Finding) -> WorkflowProblem:
    parts = [part if isinstance(part, int) else short(part) for part in finding.path]
    return WorkflowProblem(
        path=json_path(*parts),
        message=_printable(_cut(finding.message, MAX_MESSAGE)),
        node=None if finding.node is None else short(finding.node),
        slot=None if finding.slot is None else short(finding.slot),
        severity=finding.severity,
    )


def _printable(text: str) -> str:
    """Return the text without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _cut(text: str, most: int) -> str:
    """Return the text as Unicode, its end left out where it is long."""
    text = text if len(text) <= most else f"{text[:most]}…"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
