"""Counts what becomes of the calls of each tool, for those who choose and describe tools.

A call costs a counter; the file is written now and then, atomically, together with what other hosts counted. Texts of
errors have no values of arguments, and arguments that are kept as an example no secrets.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from tavern_host.common.redaction import masked
from tavern_host.context import PluginContext
from tavern_host.contracts.settings import MASK
from tavern_host.storage.file_watch import WatchedFiles
from tavern_host.storage.files import locked, write_atomic
from tavern_tools.api.toolcalls import ToolErrorType, ToolResult
from tavern_tools.api.tools import ToolStatistics
from tavern_tools.calls.call import UNKNOWN, Call

WINDOW = 200
"""So many calls of a tool count in full: with more, older ones count for less and less."""
WRITTEN_AFTER = 5.0
"""Seconds after a call until it is in the file; a host that is killed loses no more than these."""
MAX_TOOLS, MAX_ERRORS, MAX_EXAMPLES, MAX_SHAPES = 1_000, 8, 2, 8
MAX_ERROR, MAX_EXAMPLE, MAX_TEXT = 120, 300, 40
"""How many characters an error, an example as JSON, and a text within one have."""

_COUNTED = frozenset(
    {
        *(ToolErrorType.PARAMETER_VALIDATION, ToolErrorType.EXECUTION, ToolErrorType.SCRIPT, ToolErrorType.DEPENDENCY),
        *(ToolErrorType.RESOURCE, ToolErrorType.OUTPUT, ToolErrorType.TIMEOUT, ToolErrorType.SERVICE_UNAVAILABLE),
    }
)
"""What is the tool's or its caller's fault. A call that was not allowed, or stopped, says nothing of the tool."""
_VALUE = re.compile(r"'([^']*)'|\"([^\"]*)\"|\d+")
_PLACE = re.compile(r"(?<=[:;] )(\w+)[^\s:;]*(?=: )")
"""Where in the arguments something is wrong, in the text of an error about them."""
_KEPT = TypeAdapter(dict[str, ToolStatistics])
_NONE = ToolStatistics()


@dataclass
class _Counted:
    """What became of calls since the last look: a `ToolStatistics` that grows."""

    calls: int = 0
    done: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, JsonValue]] = field(default_factory=list)
    shapes: set[frozenset[str]] = field(default_factory=set)


class Statistics:
    """The statistics of one project, as one host sees them."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._path = context.operator_dir / "tools" / "statistics.json"
        self._files = WatchedFiles(self._path.name)
        self._known: dict[str, ToolStatistics] = {}
        self._known_at = -1
        self._fresh: dict[str, _Counted] = {}
        self._pending: dict[str, _Counted] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def count(self, call: Call, result: ToolResult | None) -> None:
        """Count a call that has ended, without a result where it was cancelled. Never waits."""
        tool = call.tool
        if result is None or tool is UNKNOWN or tool.draft or result.cached or result.status not in ("done", "error"):
            return
        error = result.error
        if error is not None and error.type not in _COUNTED:
            return
        if (found := self._fresh.get(tool.definition.id)) is None:
            found = self._fresh[tool.definition.id] = _Counted()
        found.calls += 1
        if error is not None:
            is_about_arguments = error.type is ToolErrorType.PARAMETER_VALIDATION
            if masked(call.request.arguments, tool.parameters.secrets) != call.request.arguments:
                text = error.type.value
            else:
                known = tool.parameters.properties
                text = _without_values(error.message, known, is_about_arguments=is_about_arguments)
            if text in found.errors or len(found.errors) < WINDOW:
                found.errors[text] = found.errors.get(text, 0) + 1
        else:
            found.done += 1
            shape = frozenset(call.request.arguments)
            if shape and shape not in found.shapes and len(found.shapes) < MAX_SHAPES:
                found.shapes.add(shape)
                _add(found.examples, _example(call.request.arguments, tool.parameters.secrets))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITTEN_AFTER, self._write_soon)

    async def of(self, tool_ids: Iterable[str] | None) -> dict[str, ToolStatistics]:
        """Return the statistics of these tools, or of all; those that were never called are left out."""
        revision = await self._files.revision(str(self._path.parent))
        if revision != self._known_at and not (self._pending and self._known_at >= 0):  # another host may have written
            self._known, self._known_at = await asyncio.to_thread(self._read), revision
        found = _merged(_merged(self._known, self._pending), self._fresh)
        return found if tool_ids is None else {id: found[id] for id in tool_ids if id in found}

    async def close(self) -> None:
        """Write what was counted."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        await self._write()

    def _write_soon(self) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        self._timer, self._pending, self._fresh = None, self._fresh, {}
        if self._pending:
            try:
                self._known = await asyncio.to_thread(self._added, self._pending)
            except OSError as error:
                self._context.log.warning("the statistics of tools could not be written: %s", error)
            self._pending = {}

    def _added(self, fresh: dict[str, _Counted]) -> dict[str, ToolStatistics]:
        """Write these calls besides those in the file, and return all."""
        with locked(self._path.with_suffix(".lock")):
            found = _merged(self._read(), fresh)
            write_atomic(self._path, _KEPT.dump_json(found, exclude_defaults=True), mode=0o600)
        return found

    def _read(self) -> dict[str, ToolStatistics]:
        try:
            return _KEPT.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            self._context.log.warning("the statistics of tools are reset, since they cannot be read: %s", error)
            return {}


def _merged(known: dict[str, ToolStatistics], fresh: dict[str, _Counted]) -> dict[str, ToolStatistics]:
    """Return the statistics with the fresh ones added; where they are too many, those of the tools called last."""
    rest = {id: one for id, one in known.items() if id not in fresh}
    latest = [*rest.items(), *((id, _sum(known.get(id, _NONE), one)) for id, one in fresh.items())]
    return dict(latest[-MAX_TOOLS:])


def _sum(first: ToolStatistics, second: _Counted) -> ToolStatistics:
    """Return two statistics as one; the examples of the second come first."""
    errors = dict(first.errors)
    for text, count in second.errors.items():
        errors[text] = errors.get(text, 0) + count
    calls, done = first.calls + second.calls, first.done + second.done
    while calls > WINDOW:
        calls, done = calls // 2, done // 2
        errors = {text: count // 2 for text, count in errors.items()}
    often = sorted((pair for pair in errors.items() if pair[1]), key=lambda pair: -pair[1])[:MAX_ERRORS]
    examples: list[dict[str, JsonValue]] = []
    for example in (*second.examples, *first.examples):
        _add(examples, example)
    return ToolStatistics(calls=calls, done=min(done, calls), errors=dict(often), examples=examples)


def _add(examples: list[dict[str, JsonValue]], example: dict[str, JsonValue] | None) -> None:
    """Add an example that gives other arguments than those that are there."""
    if example is not None and len(examples) < MAX_EXAMPLES and example.keys() not in [one.keys() for one in examples]:
        examples.append(example)


def _example(arguments: dict[str, JsonValue], secrets: Iterable[str]) -> dict[str, JsonValue] | None:
    """Return arguments as an example: without secrets, long texts cut. None where they are too long all the same."""
    shown = {name: _cut(value) for name, value in masked(arguments, frozenset(secrets)).items() if value != MASK}
    return shown if shown and len(json.dumps(shown, ensure_ascii=False)) <= MAX_EXAMPLE else None


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, list) else value


def _without_values(message: str, names: Iterable[str], *, is_about_arguments: bool) -> str:
    """Return the text of an error without what it quotes, and without names that are none of the tool's parameters: so
    the same errors count together, and none holds arguments of a call."""
    names = frozenset(names)

    def shown(match: re.Match[str]) -> str:
        return match[0] if names & {*match.groups()} else "…"

    message = _PLACE.sub(shown, message[:1_000]) if is_about_arguments else message[:1_000]
    text = " ".join(_VALUE.sub(shown, message).split())
    return text if len(text) <= MAX_ERROR else f"{text[: MAX_ERROR - 1]}…"
