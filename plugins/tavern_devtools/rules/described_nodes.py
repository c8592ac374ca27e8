"""Nodes say what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield nodes with neither a docstring nor a `description`."""
    for path, module in subject.modules.items():
        for found in ast.walk(module):
            if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            marks = [one.func if isinstance(one, ast.Call) else one for one in found.decorator_list]
            if not any(isinstance(mark, ast.Name) and mark.id == "node" for mark in marks):
                continue
            keywords = {word.arg for one in found.decorator_list if isinstance(one, ast.Call) for word in one.keywords}
            if "description" not in keywords and None not in keywords and not ast.get_docstring(found):
                message = f"the node {found.name} has no docstring; it is what creators and agents read about it"
                yield Problem(message=message, file=subject.shown(path), line=found.lineno)
