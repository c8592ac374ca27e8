"""What the code says of itself: hooks, permissions, manifest fields, services, commands, errors, variables.

Walks the code and words nothing; `reference.py` writes it down.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import pkgutil
import re
import tempfile
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticUndefined

import tavern_host
from tavern_devtools import testing as installing_module
from tavern_host import Host
from tavern_host.cli import terminal
from tavern_host.cli.descriptors import host_commands
from tavern_host.contracts import manifest, settings, ui
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.manifest import CLIENT_HOOKS
from tavern_host.contracts.plugins import PLUGINS as PLUGINS_SERVICE
from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.services import MethodInfo, ServiceInterface, interface_methods
from tavern_host.plugins import permissions
from tavern_host.projects import Folders
from tavern_host.server.app import ROUTES
from tavern_host.testing import fixtures as fixtures_module
from tavern_studio.openapi import document

from . import platform
from .pages import ROOT
from .platform import interfaces, service_permissions

HOST = "tavern-host"
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/plugin.yaml"))
"""The folders of the first-party plugins."""


# --- signatures ---------------------------------------------------------------------------------------


def signature(name: str, function: Callable[..., Any], *, is_method: bool = False) -> str:
    """Return `name(argument: Type = default, …) -> Result` with the annotations as the source writes them."""
    found = inspect.signature(function)
    parts, starred = [], False
    for parameter in list(found.parameters.values())[1 if is_method else 0 :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        parts.append(f"{parameter.name}: {parameter.annotation}{default}")
    head, result = f"{name}(", f") -> {found.return_annotation}"
    line = head + ", ".join(parts) + result
    return line if len(line) <= 110 else head + "".join(f"\n    {part}," for part in parts) + f"\n{result}"


def first_sentence(function: Any) -> str:
    """Return the first sentence of a docstring, on one line."""
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    found = re.match(r"(.*?[.!?])(?: |$)", text)
    return found[1] if found else text


# --- hooks --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hook:
    """A hook with the function that specifies it."""

    info: HookInfo
    function: Callable[..., Any]


@cache
def hooks() -> dict[str, Hook]:
    """Return every hook of the host by name."""
    return {name: Hook(info, platform.spec(name)) for name, info in platform.hooks().items()}


# --- permissions --------------------------------------------------------------------------------------

CODE_HASH = "sha256:…"
EVENT_PATTERNS = {"NODE_ERROR": "of one type", "NODE_*": "of the types that begin so", "*": "of every type"}
"""One pattern of each form, with which events it covers."""


@cache
def all_permissions() -> dict[str, PermissionInfo]:
    """Return every permission by its full name, as the host words it to an operator.

    They are what a manifest gets that asks for everything; of event patterns and code there is one of each form.
    """
    everything = {
        "hooks": [
            *(hook.info.permission for hook in hooks().values() if hook.info.permission.startswith("hook:")),
            *CLIENT_HOOKS,
        ],
        "ui": {"wrap": [*ui.COMPONENTS], "override": [*ui.COMPONENTS], "inject": [*ui.OUTLETS]},
        "services": {"override": [*interfaces()], "use": ["*", *service_permissions()]},
        "events": {"subscribe": [*EVENT_PATTERNS], "publish": [*EVENT_PATTERNS]},
    }
    greedy = manifest.Manifest.model_validate(
        {
            **{"name": "acme", "displayName": "Acme", "version": "1.0.0", "permissions": everything},
            "frontend": {"vanilla": {"entry": "index.js"}},
        }
    )
    wanted, problems = permissions.asked(greedy, code_hash=CODE_HASH, publishers=platform.publishers())
    assert not problems, problems
    panels = manifest.Frontend.model_validate({"mode": "sandbox", "vanilla": {"entry": "index.js"}})
    wanted += permissions.asked(greedy.model_copy(update={"frontend": panels}), publishers=platform.publishers())[0][
        -1:
    ]
    return {permission.name: permission for permission in wanted}


def methods_by_permission() -> dict[str, list[str]]:
    """Return `service.method` of every acting method, by the permission that it needs."""
    found: dict[str, list[str]] = {}
    for service, interface in interfaces().items():
        for method, info in interface_methods(interface).items():
            if info.permission is not None:
                found.setdefault(info.permission, []).append(f"{service}.{method}")
    return found


# --- the manifest -------------------------------------------------------------------------------------

_WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_NAMED: dict[Any, str] = {
    manifest.Name: "name",
    manifest.VersionText: "version",
    manifest.Range: "version range",
    manifest.InnerPath: "path",
    manifest.FolderName: "folder name",
    manifest.Icon: "icon",
    manifest.EventPattern: "event type or pattern",
    manifest.HookName: "hook permission",
    settings.Finite: "number",
    JsonValue: "any value",
}
_PLURALS = {
    "text": "texts",
    "path": "paths",
    "folder name": "folder names",
    "hook permission": "hook permissions",
    "event type or pattern": "event types or patterns",
}


@dataclass(frozen=True)
class Field:
    """A field of a manifest by its path in the file, such as `publishes.services[].name`."""

    path: str
    kind: str
    required: bool
    default: str


def fields(model: type[BaseModel], before: str = "") -> Iterator[Field]:
    """Yield the fields of a model and of the models in it, each before what it holds."""
    hints = typing.get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        path = f"{before}{field.alias or name}"
        kind, inner, suffix = _kind(hints[name])
        default = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        yield Field(path, kind, field.is_required(), default)
        if inner is not None:
            yield from fields(inner, f"{path}{suffix}")


def _kind(hint: Any) -> tuple[str, type[BaseModel] | None, str]:
    """Return the kind of a value in words, the model in it if any, and the next part of its path."""
    if hint in _NAMED:
        return _NAMED[hint], None, ""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(a) for a in arguments if a is not type(None)]
        words = list(dict.fromkeys(k[0] for k in kinds))
        if {"whole number", "number"} <= set(words):
            words.remove("whole number")
        return " or ".join(words), kinds[0][1], kinds[0][2]
    if origin is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in arguments), None, ""
    if origin is list:
        word, inner, _ = _kind(arguments[0])
        return (f"list of {_PLURALS[word]}" if inner is None else "list"), inner, "[]."
    if origin is dict:
        return f"{_kind(arguments[1])[0]} by {_kind(arguments[0])[0]}", None, ""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "keys", hint, "."
    return _WORDS[hint], None, ""


def _default(value: Any) -> str:
    if value is PydanticUndefined or value is None or isinstance(value, BaseModel):
        return ""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return f"`{text or ('[]' if value == [] else '{}' if value == {} else value)}`"


# --- services -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A method of an interface: how it is written, and its mark."""

    name: str
    text: str
    info: MethodInfo
    sentence: str


def methods(interface: type[ServiceInterface]) -> list[Method]:
    """Return the methods of an interface in order."""
    found = []
    for name, info in interface_methods(interface).items():
        function = getattr(interface, name)
        kind = "async def" if inspect.iscoroutinefunction(function) else "def"
        text = f"{kind} {signature(name, function, is_method=True)}"
        found.append(Method(name, text, info, first_sentence(function)))
    return found


def key_of(interface: type[ServiceInterface]) -> str:
    """Return the name of an interface's `ServiceKey` in its module."""
    module = importlib.import_module(interface.__module__)
    return next(name for name, value in vars(module).items() if getattr(value, "interface", None) is interface)


# --- the command line ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command, and whose it is."""

    owner: str
    info: CommandInfo


@cache
def commands() -> tuple[Command, ...]:
    """Return the host's commands, then those of the first-party plugins, each in order of name."""

    async def registered(folder: Path) -> list[Command]:
        host = Host(folder, folders=Folders(config=folder, state=folder, data=folder))
        try:
            await host.load()
            found = host.registrations.commands.values()
            return sorted((Command(c.plugin, c.info) for c in found), key=lambda c: (c.owner, c.info.name))
        finally:
            await host.stop()

    own = [Command(HOST, info) for info in host_commands().values()]
    with tempfile.TemporaryDirectory() as folder:
        return (*own, *asyncio.run(registered(Path(folder))))


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a host with the first-party plugins alone."""

    async def described(folder: Path) -> dict[str, Any]:
        host = Host(folder, folders=Folders(config=folder, state=folder, data=folder))
        try:
            await host.load()
            host.registrations.own_routes = tuple(info for info, _ in ROUTES)
            return document(await host.services.get(PLUGINS_SERVICE).routes())
        finally:
            await host.stop()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(described(Path(folder)))


def route_owners() -> list[str]:
    """Return who has routes: the host, then plugins."""
    tags = {operation["tags"][0] for item in openapi()["paths"].values() for operation in item.values()}
    return sorted(tags, key=lambda tag: (tag != HOST, tag))


def command_owners() -> list[str]:
    """Return who has commands: the host, then the first-party plugins that ask for them."""
    permission = hooks()["tavern_register_commands"].info.permission
    manifests = platform.manifests().values()
    asking = [m.name for m in manifests if permission in m.permissions.hooks]
    return [HOST, *sorted(asking)]


@cache
def global_options() -> dict[str, str]:
    """Return the options that stand before a command with what `tavern --help` says of each."""

    with contextlib.redirect_stdout(io.StringIO()) as output:
        terminal.run(["--help"])
    shown = output.getvalue()
    part = shown.partition("Options:\n")[2].partition("\n\n")[0]
    options: dict[str, str] = {}
    for line in part.splitlines():
        found = re.match(r"  (-\S.*?)(?:  +(\S.*))?$", line)
        if found:
            option, text = found[1], found[2] or ""
            options[option] = text
        else:
            options[option] = f"{options[option]} {line.strip()}".strip()
    return options


def environment_variables() -> list[str]:
    """Return the variables that the host and the first-party plugins read."""
    found: set[str] = set()
    for folder in (Path(tavern_host.__file__).parent, *PLUGINS):
        texts = (file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
        for tree in (ast.parse(text) for text in texts if "TAVERN_" in text):
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.update(re.findall(r"\bTAVERN_[A-Z]+(?:_[A-Z]+)*\b", node.value))
    return sorted(found)


# --- testing ------------------------------------------------------------------------------------------


def fixtures() -> set[str]:
    """Return the names of the fixtures that plugin authors get."""
    files = [Path(module.__file__) for module in (fixtures_module, installing_module)]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    marked = (f.name for f in functions if any("fixture" in ast.unparse(d) for d in f.decorator_list))
    return {name for name in marked if not name.startswith("_")}


# --- errors -------------------------------------------------------------------------------------------


def errors() -> dict[str, list[type[TavernError]]]:
    """Return the error classes of the host and the first-party plugins by code, without a module's own."""
    for package in ("tavern_host", *(folder.name for folder in PLUGINS)):
        module = importlib.import_module(package)
        for info in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not info.name.endswith("__main__"):
                importlib.import_module(info.name)
    ours = tuple(f"{name}." for name in ("tavern_host", *(folder.name for folder in PLUGINS)))
    classes: list[type[TavernError]] = [TavernError]
    for cls in classes:
        classes += [sub for sub in cls.__subclasses__() if sub not in classes]
    found: dict[str, list[type[TavernError]]] = {}
    for cls in classes:
        if cls.__module__.startswith(ours) and not cls.__name__.startswith("_"):
            found.setdefault(cls.code, []).append(cls)
    return found
