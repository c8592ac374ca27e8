"""What has the name of a hook is one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem

_PREFIX = "tavern_"
_MARKS = ("hookimpl", "hookspec")


def check(subject: Subject) -> Iterator[Problem]:
    """Yield functions beside the package itself, of which the host sees nothing, that have the name of a hook and no
    mark, where nothing of that name is marked."""
    found, marked = [], set()
    for path, module in subject.modules.items():
        for node in module.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(_PREFIX):
                if any(_name(one) in _MARKS for one in node.decorator_list):
                    marked.add(node.name)
                elif path.name != "__init__.py" or path.parent != subject.folder:
                    found.append((path, node))
    for path, node in found:
        if node.name not in marked:
            message = f"{node.name} has the name of a hook and is not marked, so it would never be called"
            hint = f"write @hookimpl above it, and import it in {subject.folder.name}/__init__.py"
            yield Problem(message=message, hint=hint, file=subject.shown(path), line=node.lineno)


def _name(mark: ast.expr) -> str:
    mark = mark.func if isinstance(mark, ast.Call) else mark
    return mark.attr if isinstance(mark, ast.Attribute) else mark.id if isinstance(mark, ast.Name) else ""
