"""The file of the `scripted` adapter: a YAML list of replies, each with what must have been said before.

    - when: {last_contains: "write a file"}   # also: contains; a text or a list of texts, all must occur
      reply: |                                # the text to answer with
        I will.
      finish_reason: stop                     # optional; this is the default
      times: 1                                # optional; how often the reply may be given

The first reply whose conditions all hold is given; without `when` it always fits. Matching is by plain
substrings, case-sensitive. Reads text only; files are the adapter's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import ChatMessage

CONDITIONS = ("contains", "last_contains")
KEYS = ("when", "reply", "finish_reason", "times")


@dataclass(frozen=True)
class ScriptedReply:
    """One reply; `line` is where it begins in the file. `contains` looks through all messages,
    `last_contains` at the last one."""

    text: str
    line: int
    contains: tuple[str, ...] = ()
    last_contains: tuple[str, ...] = ()
    finish_reason: str = "stop"
    times: int | None = None

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Return whether all conditions hold for a conversation."""
        last = messages[-1].content if messages else ""
        return all(text in last for text in self.last_contains) and all(
            any(text in message.content for message in messages) for text in self.contains
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
        if "reply" not in values and isinstance(node, yaml.MappingNode):
            self._problem(node, "the key 'reply' is missing")
        text = self._text(values["reply"], "reply") if "reply" in values else ""
        finish = self._text(values["finish_reason"], "finish_reason") if "finish_reason" in values else "stop"
        times = self._count(values["times"]) if "times" in values else None
        if len(self.problems) > before:
            return None
        return ScriptedReply(
            text=text,
            line=node.start_mark.line + 1,
            contains=conditions.get("contains", ()),
            last_contains=conditions.get("last_contains", ()),
            finish_reason=finish,
            times=times,
        )

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

    def _count(self, node: yaml.Node) -> int | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int" and node.value.isdecimal():
            count = int(node.value[:10])
            if count > 0:
                return count
        self._problem(node, "'times' must be a whole number, 1 or more")
        return None

    def _problem(self, node: yaml.Node | None, message: str) -> None:
        self.problems.append((node.start_mark.line + 1 if node is not None else 1, message))


def _misconfigured(file: str, problems: list[tuple[int, str]]) -> Misconfigured:
    lines = [f"{file}:{line}: {message}" for line, message in sorted(problems)]
    return Misconfigured("; ".join(lines), file=file, problems=lines)
