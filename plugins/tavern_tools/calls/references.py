"""References in the arguments of a step: `@{name}` and `@{step1.result.path}`; `@@{name}` is the text `@{name}`.

What is put in is not looked through again, so that a result cannot bring references of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host import clock
from tavern_host.contracts.names import did_you_mean
from tavern_tools.api.toolcalls import ToolErrorType, ToolResult
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.names import normal_form

_REFERENCE = re.compile(r"@\{([^{}\n]{1,200})\}")
_REFERENCE_OR_TEXT = re.compile(f"@?{_REFERENCE.pattern}")
_STEP = re.compile(r"step[ _-]?([0-9]{1,9})((?:[.\[].*)?)", re.IGNORECASE)
_PART = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


@dataclass
class Names:
    """What references may name: the steps before, by number, and the block's variables.

    `timestamp` is the time at which the chain began (ISO 8601, UTC).
    """

    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    request_id: str | None = None
    results: dict[int, ToolResult] = field(default_factory=dict)
    timestamp: str = field(default_factory=lambda: clock.now().isoformat(timespec="seconds"))

    def resolved(self, arguments: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
        """Return the arguments with references replaced, and a warning for each unknown name.

        An argument that is one reference and nothing else becomes the value itself, whatever its type. Raises
        `ToolFailure` for a reference to a step that gave no such thing.
        """
        warnings: list[str] = []
        return {name: self._value(name, value, warnings) for name, value in arguments.items()}, warnings

    def _value(self, name: str, value: JsonValue, warnings: list[str]) -> JsonValue:
        if isinstance(value, str):
            return self._text(name, value, warnings) if "@{" in value else value
        if isinstance(value, list):
            return [self._value(name, item, warnings) for item in value]
        if isinstance(value, dict):
            return {key: self._value(name, item, warnings) for key, item in value.items()}
        return value

    def _text(self, name: str, text: str, warnings: list[str]) -> JsonValue:
        whole = _REFERENCE.fullmatch(text.strip())
        if whole is not None:
            known, value = self._look_up(name, whole[1].strip())
            if known:
                return value
        parts: list[str] = []
        end = 0
        for match in _REFERENCE_OR_TEXT.finditer(text):
            if match[0].startswith("@@"):
                parts += [text[end : match.start()], match[0][1:]]
                end = match.end()
                continue
            known, value = self._look_up(name, match[1].strip())
            if not known:
                warning = f"nothing is called {match[0]}, in {name}{did_you_mean(match[1].strip(), self._known())}"
                if (said := f"{warning}; left as it is") not in warnings:
                    warnings.append(said)
                continue
            parts += [text[end : match.start()], value if isinstance(value, str) else to_json(value).decode()]
            end = match.end()
        return "".join([*parts, text[end:]])

    def _known(self) -> list[str]:
        return [*self.variables, "timestamp", "request_id", *(f"step{number}.result" for number in self.results)]

    def _look_up(self, argument: str, name: str) -> tuple[bool, JsonValue]:
        if name in self.variables:
            return True, self.variables[name]
        step = _STEP.fullmatch(name)
        if step is not None:
            return True, self._of_step(argument, name, int(step[1]), step[2])
        form = normal_form(name)
        for known, value in self.variables.items():
            if normal_form(known) == form:
                return True, value
        if form == "timestamp":
            return True, self.timestamp
        if form == "requestid" and self.request_id is not None:
            return True, self.request_id
        return False, None

    def _of_step(self, argument: str, name: str, number: int, path: str) -> JsonValue:
        where = f"{argument} refers to @{{{name}}}"
        result = self.results.get(number)
        if result is None:
            raise _bad(f"{where}, but no step {number} comes before this one")
        parts = [match[1] if match[1] is not None else int(match[2]) for match in _PART.finditer(path)]
        if "".join(f".{p}" if isinstance(p, str) else f"[{p}]" for p in parts) != path:
            raise _bad(f"{where}, which is no path (such as step{number}.result.items[0].name)")
        what = parts[0] if parts else "result"
        if what in ("status", "error"):
            return self._walk(where, result.to_json(), parts)
        if what != "result":
            raise _bad(f"{where}: a step has result, status and error, not {what}")
        if result.status == "pending":
            raise _bad(f"{where}, but step {number} still runs as the task {result.task_id}")
        if result.status != "done":
            raise _bad(f"{where}, but step {number} gave no result")
        return self._walk(where, result.structured, parts[1:])

    def _walk(self, where: str, value: JsonValue, parts: list[str | int]) -> JsonValue:
        for part in parts:
            if isinstance(value, dict) and str(part) in value:
                value = value[str(part)]
            elif isinstance(value, list) and str(part).isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                near = did_you_mean(str(part), value) if isinstance(value, dict) else ""
                raise _bad(f"{where}, but there is no {part!r}{near}")
        return value


def _bad(message: str) -> ToolFailure:
    return ToolFailure(ToolErrorType.PARAMETER_VALIDATION, message)
