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
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatMessage, LlmUsage
from tavern_llm.options import mistakes

MAX_VALUES, MAX_LEVELS = 50_000, 64
"""How many values a script may have, and how deeply they may be nested: aliases can make a small file large."""


def _json_text(value: Any) -> str:
    if not isinstance(value, str | dict):
        raise ValueError("must be keys and values, or a text")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


Texts = Annotated[list[str], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
JsonText = Annotated[str, BeforeValidator(_json_text)]


class _Part(Model):
    model_config = ConfigDict(alias_generator=None)


class ScriptedCall(_Part):
    """A call of a tool; `arguments` is JSON text, which a script may get wrong on purpose."""

    name: str
    arguments: JsonText = "{}"
    id: str | None = None


class Conditions(_Part):
    """What must have been said. `contains` looks through all messages, `last_contains` at the last one,
    `tool_contains` at the results of tools that came last, of which each text must be in some."""

    contains: Texts = Field(default=[])
    last_contains: Texts = Field(default=[])
    tool_contains: Texts = Field(default=[])
    last_role: Texts = Field(default=[])

    def hold(self, messages: Sequence[ChatMessage]) -> bool:
        """Return whether all hold for a conversation."""
        last = messages[-1].content if messages else ""
        results = list(itertools.takewhile(lambda message: message.role == "tool", reversed(messages)))
        return (
            all(text in last for text in self.last_contains)
            and all(messages and role == messages[-1].role for role in self.last_role)
            and all(any(text in message.content for message in messages) for text in self.contains)
            and all(any(text in result.content for result in results) for text in self.tool_contains)
        )


class ScriptedReply(_Part):
    """One reply, and how often it may be given."""

    when: Conditions = Conditions()
    reply: str = ""
    tool_calls: list[ScriptedCall] = Field(default=[])
    reasoning: str | None = None
    usage: LlmUsage = LlmUsage()
    finish_reason: str | None = None
    times: int | None = Field(default=None, ge=1, strict=True)

    @model_validator(mode="after")
    def _says_something(self) -> ScriptedReply:
        if not self.model_fields_set & {"reply", "tool_calls"}:
            raise ValueError("the key 'reply' is missing")
        return self


_KEYS = [*ScriptedReply.model_fields, *Conditions.model_fields, *ScriptedCall.model_fields, *LlmUsage.model_fields]


def read_script(text: str, file: str) -> tuple[ScriptedReply, ...]:
    """Return the replies of a script. `file` names it in messages.

    Raises `Misconfigured` with every problem and its line.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.SequenceNode) or not root.value:
            raise _misconfigured(file, [(1, "expected a list of replies: '- reply: …', each with an optional 'when'")])
        counted = itertools.count(1)
        items = [(node, _value(node, counted)) for node in root.value]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _misconfigured(file, [(line, f"not valid YAML: {error.problem or error.context}")]) from None
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise _misconfigured(file, [(1, f"not valid YAML: {type(error).__name__}")]) from None
    replies, problems = [], []
    for node, value in items:
        try:
            replies.append(ScriptedReply.model_validate(value))
        except ValidationError as error:
            for place, text in mistakes(error):
                hint = "; write it in quotes" if text.endswith("valid string") else ""
                hint = did_you_mean(str(place[-1]), _KEYS) if text.endswith("unknown option") else hint
                problems.append((_line(node, place), text + hint))
    if problems:
        raise _misconfigured(file, problems)
    return tuple(replies)


def _value(node: yaml.Node, counted: itertools.count[int], level: int = 0) -> Any:
    """Return the value of a node as JSON has it. Raises `MarkedYAMLError`."""
    if next(counted) > MAX_VALUES or level > MAX_LEVELS:
        raise _wrong(node, "too many values, or nested too deeply")
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in found:
                raise _wrong(key, f"the key {key.value!r:.80} stands here twice, or is no text")
            found[key.value] = _value(value, counted, level + 1)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, counted, level + 1) for item in node.value]
    is_plain = node.tag.rpartition(":")[2] in ("null", "bool", "int", "float")
    return yaml.constructor.SafeConstructor().construct_object(node) if is_plain else node.value


def _wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _line(node: yaml.Node, place: tuple[str | int, ...]) -> int:
    """Return the line of a part of a node, or of its nearest parent, from 1."""
    mark = node.start_mark
    for part in place:
        if isinstance(node, yaml.MappingNode):
            key, node = next((pair for pair in node.value if pair[0].value == part), (node, node))
            mark = key.start_mark
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
    return int(mark.line) + 1


def _misconfigured(file: str, problems: list[tuple[int, str]]) -> Misconfigured:
    lines = [f"{file}:{line}: {message}" for line, message in sorted(problems)]
    return Misconfigured("; ".join(lines), file=file, problems=lines)
