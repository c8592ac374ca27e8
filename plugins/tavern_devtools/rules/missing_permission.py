"""What the code does with services and events, the manifest asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pkgutil import resolve_name
from typing import Any

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.services import ServiceKey, interface_methods

Key = ServiceKey[Any]
_EVENTS = {"publish": "publish", "subscribe": "subscribe"}


def check(subject: Subject) -> Iterator[Problem]:
    """Yield calls of services and events, where both stand in one function, that the host would refuse."""
    if subject.info.first_party:
        return
    for path, module in subject.modules.items():
        keys = _keys(module)
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                known = _views(function, keys)
                for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
                    for message, hint in [*_service(subject, call, known, keys), *_event(subject, call)]:
                        yield Problem(message=message, hint=hint, file=subject.shown(path), line=call.lineno)


def _keys(module: ast.Module) -> dict[str, Key]:
    """Return the keys of services that a module imports from the host, by the name that it gives them."""
    named, used = dict[str, str](), {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("tavern_"):
            for one in node.names:
                names = used if one.name == "*" else {one.asname or one.name}
                named |= {name: f"{node.module}:{name if one.name == '*' else one.name}" for name in names}
    upper = {name: place for name, place in named.items() if place.rpartition(":")[2].isupper()}
    return {name: key for name, place in upper.items() if (key := _key(place)) is not None}


@cache
def _key(place: str) -> Key | None:
    package = place.partition(":")[0].split(".")
    if package[0] != "tavern_host" and package[1:2] != ["api"]:
        return None
    try:
        found = resolve_name(place)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, ServiceKey) else None


def _views(function: ast.AST, keys: dict[str, Key]) -> dict[str, Key]:
    """Return the variables of a function that hold the view of a service."""
    found = {}
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        key = _got(node.value, keys) if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and key is not None:
            found[target.id] = key
    return found


def _got(value: ast.AST, keys: dict[str, Key]) -> Key | None:
    """Return the key in `….services.get(KEY)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        of, first = value.func.value, value.args[0] if value.args else None
        if isinstance(of, ast.Attribute) and of.attr == "services" and isinstance(first, ast.Name):
            return keys.get(first.id)
    return None


def _service(
    subject: Subject, call: ast.Call, known: dict[str, Key], keys: dict[str, Key]
) -> Iterator[tuple[str, str]]:
    if not isinstance(call.func, ast.Attribute):
        return
    of, method = call.func.value, call.func.attr
    key = known.get(of.id) if isinstance(of, ast.Name) else _got(of, keys)
    if key is None:
        return
    methods = interface_methods(key.interface)
    if method not in methods:
        yield f"{key.name} has no method {method!r}", suggest(method, methods) or "docs/services.md has all methods"
    elif (permission := methods[method].permission) is not None and not _asked(subject, f"services.use:{permission}"):
        message = f"{key.name}.{method} needs the permission {permission}, which the manifest does not ask for"
        yield message, f'add "{permission}" to permissions.services.use in plugin.yaml'


def _event(subject: Subject, call: ast.Call) -> Iterator[tuple[str, str]]:
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr in _EVENTS and isinstance(func.value, ast.Attribute)):
        return
    if func.value.attr != "events":
        return
    given = call.args if func.attr == "subscribe" else call.args[:1]
    for one in given:
        name = one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else ""
        if name and not name.startswith(f"{subject.info.name}.") and not _asked(subject, f"events.{func.attr}:{name}"):
            message = f"events.{func.attr} of {name} needs a permission that the manifest does not ask for"
            yield message, f'add "{name}" to permissions.events.{func.attr} in plugin.yaml'


def _asked(subject: Subject, permission: str) -> bool:
    return any(fnmatchcase(permission, one.name) for one in subject.info.permissions)
