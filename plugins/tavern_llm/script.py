"""The file of the `scripted` adapter: a YAML list of replies, each with what must have been said before.

    - when: {last_contains: "write a file"}   # each condition: a text or a list of texts, all must occur
      reply: |                                # the text to answer with
        I will.
      tool_calls:                             # native calls of tools, beside the text or without
        - {name: write, arguments: {path: a.txt}}
    - reply: Done.
      when: {tool_contains: "written"}

docs/models.md describes all conditions and keys. The first reply whose conditions all hold is given; without `when` it
always fits. Matching is by plain substrings, case-sensitive. Reads text only; files are the adapter's business.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import ChatMessage, LlmUsage

CONDITIONS = ("contains", "last_contains", "tool_contains", "last_role")
KEYS = ("when", "reply", "tool_calls", "reasoning", "usage", "finish_reason", "times")
CALL_KEYS = ("name", "arguments", "id")
USAGE_KEYS = tuple(LlmUsage.model_fields)

MAX_VALUES = 10_000
"""How many values the arguments of one call may have: aliases can make a small file large."""


@dataclass(frozen=True)
class ScriptedCall:
    """A call of a tool; `arguments` is JSON text, which a script may get wrong on purpose."""

    name: str
    arguments: str = "{}"
    id: str | None = None


@dataclass(frozen=True)
class ScriptedReply:
    """One reply; `line` is where it begins in the file. `contains` looks through all messages, `last_contains` at the
    last one, `tool_contains` at the results of tools that came last, of which each text must be in some."""

    text: str
    line: int
    contains: tuple[str, ...] = ()
    last_contains: tuple[str, ...] = ()
    finish_reason: str = "stop"
    times: int | None = None
    tool_contains: tuple[str, ...] = ()
    last_role: tuple[str, ...] = ()
    tool_calls: tuple[ScriptedCall, ...] = ()
    reasoning: str | None = None
    usage: LlmUsage = field(default_factory=LlmUsage)

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Return whether all conditions hold for a conversation."""
        last = messages[-1].content if messages else ""
        results = list(itertools.takewhile(lambda message: message.role == "tool", reversed(messages)))
        return (
            all(text in last for text in self.last_contains)
            and all(messages and role == messages[-1].role for role in self.last_role)
            and all(any(text in message.content for message in messages) for text in self.contains)
            and all(any(text in result.content for result in results) for text in self.tool_contains)
        )


def read_script(text: str, file: str) -> tuple[ScriptedReply, ...]:
    """Return the replies of a script. `file` names it in messages.

    Raises `Misconfigured` with every problem and its line.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _misconfigured(file, [(line, f"not valid YAML: {error.problem or error.context}")]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _misconfigured(file, [(1, f"not valid YAML: {type(error).__name__}")]) from None
    reader = _Reader()
    replies = reader.replies(root)
    if reader.problems:
        raise _misconfigured(file, reader.problems)
    return replies


class _Reader:
    """Turns YAML nodes into replies and notes what is wrong, by line."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []

    def replies(self, root: yaml.Node | None) -> tuple[ScriptedReply, ...]:
        if not isinstance(root, yaml.SequenceNode) or not root.value:
            self._problem(root, "expected a list of replies: '- reply: …', each with an optional 'when'")
            return ()
        return tuple(reply for node in root.value if (reply := self._reply(node)) is not None)

    def _reply(self, node: yaml.Node) -> ScriptedReply | None:
        before = len(self.problems)
        values = self._mapping(node, KEYS, "a reply")
        when = self._mapping(values["when"], CONDITIONS, "'when'") if "when" in values else {}
        conditions = {name: self._texts(value, name) for name, value in when.items()}
        if "reply" not in values and "tool_calls" not in values and isinstance(node, yaml.MappingNode):
            self._problem(node, "the key 'reply' is missing")
        given = {key: self._text(values[key], key) for key in ("reply", "reasoning", "finish_reason") if key in values}
        calls = self._calls(values["tool_calls"]) if "tool_calls" in values else ()
        usage = self._mapping(values["usage"], USAGE_KEYS, "'usage'") if "usage" in values else {}
        counts = {key: self._count(value, key) for key, value in usage.items()}
        times = self._count(values["times"], "times") if "times" in values else None
        if len(self.problems) > before:
            return None
        return ScriptedReply(
            text=given.get("reply", ""),
            line=node.start_mark.line + 1,
            finish_reason=given.get("finish_reason", "tool_calls" if calls else "stop"),
            times=times,
            tool_calls=calls,
            reasoning=given.get("reasoning"),
            usage=LlmUsage(**counts),
            **conditions,
        )

    def _calls(self, node: yaml.Node) -> tuple[ScriptedCall, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self._problem(node, "'tool_calls' must be a list: '- {name: …, arguments: {…}}'")
            return ()
        return tuple(self._call(item) for item in node.value)

    def _call(self, node: yaml.Node) -> ScriptedCall:
        values = self._mapping(node, CALL_KEYS, "a call")
        if "name" not in values and isinstance(node, yaml.MappingNode):
            self._problem(node, "the call's 'name' is missing")
        given = {key: self._text(values[key], key) for key in ("name", "id") if key in values}
        arguments = "{}"
        if "arguments" in values:
            arguments = self._arguments(values["arguments"])
        return ScriptedCall(given.get("name", ""), arguments, given.get("id"))

    def _arguments(self, node: yaml.Node) -> str:
        """Return JSON text: of keys and values, or a text as it stands."""
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            return str(node.value)
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, "'arguments' must be keys and values, or a text")
            return "{}"
        try:
            return json.dumps(_value(node, itertools.count(1)), ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError) as error:
            self._problem(node, f"'arguments' cannot be JSON: {error}")
            return "{}"

    def _mapping(self, node: yaml.Node, known: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, f"{what} must be keys and values: {', '.join(known)}")
            return {}
        values: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key not in known:
                self._problem(key_node, f"{what} has no key {key!r}; there is {', '.join(known)}")
            elif key in values:
                self._problem(key_node, f"the key {key!r} stands here twice")
            else:
                values[key] = value
        return values

    def _texts(self, node: yaml.Node, name: str) -> tuple[str, ...]:
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._text(item, name) for item in node.value)
        return (self._text(node, name),)

    def _text(self, node: yaml.Node, name: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            return str(node.value)
        hint = f'; write it in quotes: "{node.value}"' if isinstance(node, yaml.ScalarNode) and node.value else ""
        self._problem(node, f"{name!r} must be a text{hint}")
        return ""

    def _count(self, node: yaml.Node, name: str) -> int | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int" and node.value.isdecimal():
            count = int(node.value[:10])
            if count > 0:
                return count
        self._problem(node, f"{name!r} must be a whole number, 1 or more")
        return None

    def _problem(self, node: yaml.Node | None, message: str) -> None:
        self.problems.append((node.start_mark.line + 1 if node is not None else 1, message))


def _value(node: yaml.Node, counted: itertools.count[int]) -> Any:
    """Return the value of a node as JSON has it. Raises `ValueError` for too many."""
    if next(counted) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _value(value, counted) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, counted) for item in node.value]
    plain = node.tag.rpartition(":")[2] in ("null", "bool", "int", "float")
    return yaml.constructor.SafeConstructor().construct_object(node) if plain else node.value


def _misconfigured(file: str, problems: list[tuple[int, str]]) -> Misconfigured:
    lines = [f"{file}:{line}: {message}" for line, message in sorted(problems)]
    return Misconfigured("; ".join(lines), file=file, problems=lines)
