"""Nothing is asked for that is not used: each permission is one more for an operator to think about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import MANIFEST, Problem

_BY_MANIFEST = frozenset({"hook:server:nodes:register", "hook:server:tools:discover", "hook:server:ui:declare"})
"""What the manifest's own `nodes`, `tools`, `frontend` and `ui` ask for."""
_USE = re.compile(r"services\.use:(?P<service>[A-Za-z]\w*):\w+")
_EVENTS = re.compile(r"events\.(publish|subscribe):(?P<type>[A-Z][A-Z0-9_]+)")


def check(subject: Subject) -> Iterator[Problem]:
    """Yield permissions of which there is no trace in the plugin's files. Patterns are for more than can be seen."""
    if subject.info.first_party:  # nobody decides about what these ask for
        return
    functions = [
        frozenset(node.name.split("_"))
        for module in subject.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("tavern_")
    ]
    for permission in subject.info.permissions:
        if _is_unused(permission.name, subject.text, functions):
            message = f"it asks for {permission.name}, and nothing in it uses that"
            yield Problem(message=message, hint="leave it out", file=f"{subject.folder.name}/{MANIFEST}")


def _is_unused(permission: str, text: str, functions: list[frozenset[str]]) -> bool:
    if permission in _BY_MANIFEST:
        return False
    if permission.startswith("hook:server:"):  # a hook is called like its permission, in other order
        *_, about, moment = permission.split(":")
        words = {*moment.split("-"), *([about] if moment == "register" else [])}
        return not any(words <= function for function in functions)
    if found := _USE.fullmatch(permission):
        service = found["service"]
        constant = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", service).upper()
        spellings = (service, constant, service[:1].upper() + service[1:])
        return not any(re.search(rf"\b{word}\b", text) for word in spellings)
    if found := _EVENTS.fullmatch(permission):
        return found["type"] not in text
    return False
