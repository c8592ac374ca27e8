"""What is wrong with the front end of one plugin, read from its sources: what the page would refuse when it loads it.

The page's own rules are in `frontend/src/extensions/api.ts`; names of outlets and parts are the host's, for both.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.contracts.manifest import CLIENT_HOOKS, PACKAGES, Frontend, Permissions, canonical
from tavern_host.contracts.names import suggest
from tavern_host.contracts.ui import outlet_base, unknown_target

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_FILE = 1 << 20
"""The size of the largest source that is read, in bytes: what is larger, nobody has written."""
LONGEST_LINE = 500
"""How many bytes a line has at most in what somebody has written; other files are built."""
SOURCES = (".js", ".mjs", ".ts", ".vue")
SERVICES = ("workflowManager", "events")
_TYPED = (".ts", ".vue")
"""Of these only calls are read; what builds them says what is wrong with their syntax."""
_SCRIPT = re.compile(rb"<script\b[^>]*>(.*?)</script>", re.DOTALL)
_UI = {"registerOutletComponent": "inject", "wrapComponent": "wrap", "overrideComponent": "override"}


async def check_plugin(plugin: CheckedPlugin) -> list[Finding]:
    """Return mistakes in the syntax of what the page loads as it is, and calls that the page would refuse."""
    return await asyncio.to_thread(_check, plugin)


def _check(plugin: CheckedPlugin) -> list[Finding]:
    front = plugin.part("frontend", Frontend)
    if front is None:
        return []
    permissions, found = plugin.part("permissions", Permissions) or Permissions(), list[Finding]()
    for folder, is_loaded in _folders(Path(plugin.root), front):
        for path in _sources(folder):
            found += _Source(path, plugin.name, permissions, is_loaded and path.suffix not in _TYPED).findings()
    return found


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != PACKAGES)
        for path in (Path(folder, name) for name in sorted(names)):
            is_source = path.suffix in SOURCES and not path.name.endswith(".d.ts")
            if is_source and path.is_file() and path.stat().st_size <= MAX_FILE:
                yield path


def _folders(root: Path, front: Frontend) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of sources, each with whether a browser loads these files as they are."""
    folder = front.folder()
    if front.vanilla is not None and front.type != "vite" and folder is not None:
        yield root / folder, True
    elif front.dev is not None:
        yield (root / front.dev.entry).parent, False


@dataclass(frozen=True)
class _Source:
    path: Path
    plugin: str
    permissions: Permissions
    is_loaded: bool

    def findings(self) -> Iterator[Finding]:
        data = self.path.read_bytes()
        if any(len(line) > LONGEST_LINE for line in data.splitlines()):
            return
        scripts = [(one.start(1), one[1]) for one in _SCRIPT.finditer(data)]
        for start, text in scripts if self.path.suffix == ".vue" else [(0, data)]:
            lines = data.count(b"\n", 0, start)
            root = _parsed(text)
            if self.is_loaded and root.has_error:
                yield self._mistake(root)
            for call in _calls(root):
                yield from self._refused(call, lines)

    def _mistake(self, root: Node) -> Finding:
        wrong = next(one for one in _nodes(root) if one.is_missing or one.is_error)
        if wrong.is_missing:
            (row, column), message = wrong.start_point, f"not valid JavaScript: {wrong.type!r} is missing"
        else:
            last = max((one for one in _nodes(wrong) if one.child_count == 0), key=lambda one: one.end_byte)
            (row, column), message = last.start_point, f"not valid JavaScript near {_text(last)!r:.60}"
        return self._finding(message, "mend it there: the page loads the file as it is", row, column)

    def _refused(self, call: _Call, lines: int) -> Iterator[Finding]:
        permissions = self.permissions
        row, column = lines + call.row, call.column
        if kind := _UI.get(call.method):
            unknown = unknown_target(kind, call.argument)
            asked = getattr(permissions.ui, kind)
            if unknown is not None:
                yield self._finding(unknown[0], unknown[1] or "docs/studio-extensions.md has all", row, column)
            elif not {call.argument, outlet_base(call.argument)} & {*asked}:
                yield self._needs(call, f"permissions.ui.{kind}", call.argument, row, column)
        elif (call.of, call.method) == ("hooks", "on"):
            name = canonical(f"hook:client:{call.argument.removeprefix('hook:client:')}")
            if name not in CLIENT_HOOKS:
                known = [one.removeprefix("hook:client:") for one in CLIENT_HOOKS]
                hint = suggest(call.argument, known) or f"there is {', '.join(known)}"
                yield self._finding(f"there is no client hook {call.argument!r}", hint, row, column)
            elif name not in permissions.hooks:
                yield self._needs(call, "permissions.hooks", name, row, column)
        elif (call.of, call.method) == ("services", "get") and call.argument not in SERVICES:
            hint = suggest(call.argument, SERVICES) or f"there is {' and '.join(SERVICES)}"
            yield self._finding(f"there is no client service {call.argument!r}", hint, row, column)
        elif (call.of, call.method) == ("services", "override") and call.argument not in permissions.services.override:
            yield self._needs(call, "permissions.services.override", call.argument, row, column)
        elif (call.of, call.method) == ("events", "on") and not self._may_hear(call.argument):
            yield self._needs(call, "permissions.events.subscribe", call.argument, row, column)

    def _may_hear(self, type: str) -> bool:
        asked = self.permissions.events.subscribe
        covered = any(one == type or (one.endswith("*") and type.startswith(one[:-1])) for one in asked)
        return covered or type.startswith(f"{self.plugin}.")

    def _needs(self, call: _Call, where: str, what: str, row: int, column: int) -> Finding:
        message = f'{call.method}("{call.argument}") needs a permission that the manifest does not ask for'
        return self._finding(message, f'add "{what}" to {where} in plugin.yaml', row, column)

    def _finding(self, message: str, hint: str, row: int, column: int) -> Finding:
        return Finding(
            rule="front-end", message=message, hint=hint, file=str(self.path), line=row + 1, column=column + 1
        )


@dataclass(frozen=True)
class _Call:
    """A call of `of.method("argument")`, with its place, counted from 0."""

    of: str
    method: str
    argument: str
    row: int
    column: int


def _parsed(text: bytes) -> Node:
    import tree_sitter
    import tree_sitter_javascript

    language = tree_sitter.Language(tree_sitter_javascript.language())
    return tree_sitter.Parser(language).parse(text).root_node


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _calls(root: Node) -> Iterator[_Call]:
    """Yield the calls whose first argument is a text, or a list of texts."""
    for node in _nodes(root):
        function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if node.type != "call_expression" or function is None or given is None or not given.named_children:
            continue
        if function.type == "member_expression":
            method, of = function.child_by_field_name("property"), _of(function.child_by_field_name("object"))
        else:
            method, of = function, ""
        first = given.named_children[0]
        for one in first.named_children if first.type == "array" else [first]:
            if one.type == "string" and method is not None:
                row, column = one.start_point
                yield _Call(of, _text(method), _text(one)[1:-1], row, column)


def _of(node: Node | None) -> str:
    """Return the object that a method is called on: the last name of `api.ui`, and `events` of
    `api.services.get("events")`."""
    if node is None:
        return ""
    if node.type == "member_expression":
        return _of(node.child_by_field_name("property"))
    if node.type == "call_expression":
        inner = node.child_by_field_name("arguments")
        first = inner.named_children[0] if inner is not None and inner.named_children else None
        is_service = _of(node.child_by_field_name("function")) == "get"
        return _text(first)[1:-1] if is_service and first is not None and first.type == "string" else ""
    return _text(node)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
