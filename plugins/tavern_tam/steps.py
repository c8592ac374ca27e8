"""Pairs of key and value to tool calls: which step a key belongs to, and what TAM's own words ask for.

What the TAM format leaves open is decided so:

- A known parameter wins over a word of the protocol, so that a tool may have a parameter `comment`.
- A key without a number in a chain belongs to the step whose command was written last, with a warning.
- `common_P` is an argument of every step that has none of its own, where the tool is unknown or has `P`. All of a
  block's are variables of its calls, as `P` and as `common_P`; the references to them are not resolved here.
- `argument_P` is the argument `P` where `P` would else be a word of the protocol (`argument_command`).
- `retry` and `on_error` without a number are for every step that has none of its own.
- A key given twice with different values leaves open what is meant, so that nothing is called; a second `command` is
  the tool's parameter of that name, where it has one. So does a numbered command beside one without a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from tavern_tam.block import Pair
from tavern_tam.hints import hinted
from tavern_tam.keys import Key, normalise, without_number
from tavern_tam.window import Warn, made
from tavern_tools.api.toolcalls import ToolCallRequest

MOST_COMMON = 32
"""How many `common_P` a block may have: each is an argument of every step, which must not grow as a product."""

MOST_RETRIES = 10

PROTOCOL = "tam"

OnError = Literal["stop", "continue"]

_RETRIES = re.compile("[0-9]{1,3}")


class ParameterNames:
    """The parameter names of the known tools, to be found by any spelling."""

    def __init__(self, parameters: Mapping[str, Sequence[str]]) -> None:
        self._parameters = parameters
        self._tools: dict[str, dict[str, str]] = {}

    def of(self, tool_id: str) -> dict[str, str] | None:
        """Return spelling → name, for exact and for normalised spellings; None for an unknown tool."""
        names = self._tools.get(tool_id)
        if names is None and tool_id in self._parameters:
            names = {name: name for name in self._parameters[tool_id]}
            for name in self._parameters[tool_id]:
                names.setdefault(normalise(name), name)
            self._tools[tool_id] = names
        return names


@dataclass(slots=True)
class Steps:
    """What a block asks for: its calls, in the order of their numbers, or the `problem` for which there are none."""

    calls: list[ToolCallRequest] = field(default_factory=list)
    warnings: list[Warn] = field(default_factory=list)
    problem: Warn | None = None


@dataclass(slots=True)
class _Step:
    tool_id: str
    command: Pair
    names: dict[str, str] | None
    arguments: dict[str, JsonValue] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)  # `same(name)` → name in `arguments`
    on_error: OnError | None = None
    retry: int | None = None

    def parameter(self, written: str, name: str) -> str | None:
        """Return the tool's own name of a parameter, None if it has no such or is unknown."""
        if self.names is None:
            return None
        return self.names.get(written) or self.names.get(name)

    def same(self, name: str) -> str:
        """Return by what an argument is compared: a known tool may have names that only spelling distinguishes."""
        return normalise(name) if self.names is None else name


def call_of(
    tool_id: str,
    arguments: dict[str, JsonValue],
    block: int,
    *,
    index: int = 1,
    request_id: str | None = None,
    on_error: OnError = "stop",
    retry: int = 0,
    variables: dict[str, JsonValue] | None = None,
) -> ToolCallRequest:
    """Return a call of TAM; the fields are those of `ToolCallRequest`, and the dicts become the call's own."""
    values = {
        "tool_id": tool_id,
        "arguments": arguments,
        "index": index,
        "block": block,
        "request_id": request_id,
        "on_error": on_error,
        "retry": retry,
        "variables": variables or {},
        "protocol": PROTOCOL,
        "repairs": [],
        "refused": None,
    }
    return made(ToolCallRequest, values)


def steps_of(pairs: Sequence[Pair], names: ParameterNames, offset: int, block: int = 0) -> Steps:
    """Return the calls that a block's pairs ask for; `offset` is where the block begins, `block` its number."""
    return _Reader(names, block).read(pairs, offset)


class _Reader:
    def __init__(self, names: ParameterNames, block: int) -> None:
        self._names = names
        self._block = block
        self._steps: dict[int, _Step] = {}
        self._chain = False
        self._warnings: list[Warn] = []
        self._problem: Warn | None = None
        self._request_id: str | None = None
        self._on_error: OnError = "stop"
        self._retry = 0
        self._options: dict[tuple[str, str], str] = {}  # by word and number
        self._common: dict[str, Pair] = {}  # by the parameter's name
        self._hints: dict[tuple[int, str], Pair] = {}

    def read(self, pairs: Sequence[Pair], offset: int) -> Steps:
        problem = self._find_commands(pairs)
        if problem is None and not self._steps:
            problem = Warn("a block without a command", offset)
        if problem is not None:
            return Steps(warnings=self._warnings, problem=problem)
        current = next(iter(self._steps))
        for pair in pairs:
            key = pair.key
            if key.word == "command":
                number = int(key.digits) if self._chain else 1
                if number in self._steps and self._steps[number].command is pair:
                    current = number
                    continue
            if key.word or self._chain:
                self._place(pair, current)
            else:
                step = self._steps[current]
                self._set(pair, step, step.parameter(key.written, key.name) or key.written)
        for (number, name), pair in self._hints.items():
            self._apply_hint(self._steps[number], name, pair)
        self._apply_common()
        if self._problem is not None:
            return Steps(warnings=self._warnings, problem=self._problem)
        return Steps(list(self._calls()), self._warnings)

    def _find_commands(self, pairs: Sequence[Pair]) -> Warn | None:
        commands = [pair for pair in pairs if pair.key.word == "command"]
        self._chain = all(pair.key.digits for pair in commands)
        for pair in commands:
            if pair.key.digits and not self._chain:
                continue
            number = int(pair.key.digits) if self._chain else 1
            step = self._steps.get(number)
            if step is None:
                tool_id = pair.value.strip()
                if not tool_id:
                    return Warn(f"{pair.key.written!r} names no tool", pair.offset)
                self._steps[number] = _Step(tool_id, pair, self._names.of(tool_id))
            elif step.parameter("command", "command") is None:
                return Warn(f"{pair.key.written!r} is given twice; number the commands of a chain", pair.offset)
        for key in [pair.key for pair in commands if pair.key.digits and not self._chain]:
            if self._steps[1].parameter(key.written, key.name) is None:
                return Warn(f"{key.written!r} stands beside a command without a number; number all", commands[0].offset)
        return None

    def _place(self, pair: Pair, current: int) -> None:
        key = pair.key
        metadata = self._chain and key.word in ("comment", "request_id")
        known = None if metadata else self._known(key, current)
        if known is not None:
            self._set(pair, self._steps[known[0]], known[1])
        elif key.word and key.word != "command":
            self._option(pair, current)
        else:
            number, name, assigned = self._guess(key, current)
            if not assigned:
                self._warn(pair, f"{key.written!r} names no step and is taken for step {number}")
            self._set(pair, self._steps[number], name)

    def _known(self, key: Key, current: int) -> tuple[int, str] | None:
        """Return step and name where a tool has the parameter, in whole or without the step's number."""
        whole = self._steps[current].parameter(key.written, key.name)
        if whole is not None or not self._chain:
            return None if whole is None else (current, whole)
        if key.digits:
            numbered = list(self._numbered(key))
            for number, _ in numbered:
                whole = self._steps[number].parameter(key.written, key.name)
                if whole is not None:
                    return number, whole
            for number, base in numbered:
                name = self._steps[number].parameter(base, normalise(base))
                if name is not None:
                    return number, name
        return None

    def _guess(self, key: Key, current: int) -> tuple[int, str, bool]:
        """Return step and name of a key that is no known parameter, and whether it says itself which step."""
        if not self._chain:
            return current, key.written, True
        for number, base in self._numbered(key):
            return number, base, True
        return current, key.written, False

    def _numbered(self, key: Key) -> Iterator[tuple[int, str]]:
        """Yield each reading of the digits at the end of a key as the number of an existing step, and the
        rest of the key; the longest first."""
        for length in range(min(len(key.digits), 9), 0, -1):
            number = int(key.digits[-length:])
            base = without_number(key.written, length)
            if number in self._steps and normalise(base):
                yield number, base

    def _set(self, pair: Pair, step: _Step, name: str) -> None:
        same = step.same(name)
        earlier = step.written.get(same)
        if earlier is not None:
            self._report_repeated(pair, step.arguments[earlier] == pair.value)
            return
        step.written[same] = name
        step.arguments[name] = pair.value

    def _option(self, pair: Pair, current: int) -> None:
        key = pair.key
        value = pair.value.strip()
        if key.word == "comment":
            return
        if key.word in ("request_id", "retry", "on_error"):
            before = self._options.setdefault((key.word, key.digits.lstrip("0")), value)
            if before != value:
                self._report_repeated(pair, is_same=False)
        if key.word == "request_id":
            self._request_id = value or None
        elif key.word == "common" and key.inner is not None:
            self._set_common(pair, key.inner)
        elif key.word == "argument" and key.inner is not None:
            self._place(pair._replace(key=key.inner), current)
        elif key.word == "type_hint" and key.inner is not None:
            about = key.inner
            known = self._known(about, current)
            if known is None and about.word == "argument" and about.inner is not None:
                about = about.inner
            number, name = known or self._known(about, current) or self._guess(about, current)[:2]
            if self._hints.setdefault((number, name), pair).value.strip() != value:
                self._report_repeated(pair, is_same=False)
        elif key.digits and int(key.digits) not in self._steps:
            self._warn(pair, f"{key.written!r} names no step")
        elif key.word == "retry":
            self._set_retry(pair, value)
        else:
            self._set_on_error(pair, value.casefold())

    def _set_common(self, pair: Pair, parameter: Key) -> None:
        if len(self._common) == MOST_COMMON and parameter.name not in self._common:
            self._refuse(pair, f"{pair.key.written!r} is one too many: a block has {MOST_COMMON} common parameters")
        elif (earlier := self._common.setdefault(parameter.name, pair)) is not pair:
            self._report_repeated(pair, earlier.value == pair.value)

    def _set_retry(self, pair: Pair, value: str) -> None:
        times = int(value) if _RETRIES.fullmatch(value) else MOST_RETRIES + 1
        if times > MOST_RETRIES:
            shown = f"{pair.key.written!r} is a number from 0 to {MOST_RETRIES}, not {value[:40]!r}"
            self._warn(pair, f"{shown}; the step is not tried again")
        elif pair.key.digits:
            self._steps[int(pair.key.digits)].retry = times
        else:
            self._retry = times

    def _set_on_error(self, pair: Pair, value: str) -> None:
        if value not in ("stop", "continue"):
            self._warn(
                pair, f"{pair.key.written!r} is stop or continue, not {value[:40]!r}; the chain stops on an error"
            )
            return
        on_error: OnError = "continue" if value == "continue" else "stop"
        if pair.key.digits:
            self._steps[int(pair.key.digits)].on_error = on_error
        else:
            self._on_error = on_error

    def _apply_hint(self, step: _Step, name: str, pair: Pair) -> None:
        name = step.written.get(step.same(name), name)
        value = step.arguments.get(name)
        if not isinstance(value, str):
            self._warn(pair, f"{pair.key.written!r}: the step has no text argument {name!r}")
            return
        try:
            step.arguments[name] = hinted(value, pair.value.strip())
        except ValueError as error:
            self._warn(pair, f"{pair.key.written!r}: {error}; {name!r} stays text")

    def _apply_common(self) -> None:
        for pair in self._common.values():
            key = pair.key.inner
            if key is None:
                continue
            for step in self._steps.values():
                name = key.written if step.names is None else step.parameter(key.written, key.name)
                if name is not None and step.same(name) not in step.written:
                    step.written[step.same(name)] = name
                    step.arguments[name] = pair.value

    def _variables(self) -> dict[str, JsonValue]:
        variables: dict[str, JsonValue] = {}
        for pair in self._common.values():
            if pair.key.inner is not None:
                variables[pair.key.inner.written] = pair.value
                variables[f"common_{pair.key.inner.written}"] = pair.value
        return variables

    def _calls(self) -> Iterator[ToolCallRequest]:
        for number in sorted(self._steps):
            step = self._steps[number]
            yield call_of(
                step.tool_id,
                step.arguments,
                self._block,
                index=number,
                request_id=self._request_id,
                on_error=step.on_error or self._on_error,
                retry=self._retry if step.retry is None else step.retry,
                variables=self._variables(),
            )

    def _warn(self, pair: Pair, text: str) -> None:
        self._warnings.append(Warn(text, pair.offset))

    def _report_repeated(self, pair: Pair, is_same: bool) -> None:
        if is_same:
            self._warn(pair, f"{pair.key.written!r} is given twice, with the same value")
        else:
            self._refuse(pair, f"{pair.key.written!r} is given twice, with different values")

    def _refuse(self, pair: Pair, text: str) -> None:
        self._problem = self._problem or Warn(text, pair.offset)
