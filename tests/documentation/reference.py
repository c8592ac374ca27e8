"""Writes down what `facts.py` found, as the reference parts of the pages.

A column that people write (`by_hand`) is kept as it stands in the page; in a row that is new it says `TO_DO`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.manifest import ALIASES, CLIENT_HOOKS, Manifest, canonical
from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.ui import COMPONENTS, FRONTENDS, OUTLETS

from . import facts, studio
from .pages import ROOT, Page, table
from .platform import interfaces

TO_DO = "TO DO"

Rows = Sequence[Sequence[str]]
Render = Callable[[str], str]
"""Returns a reference part; is given what stands there now."""


def write_table(columns: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _table(columns: Sequence[str], rows: Callable[[], Rows], by_hand: Sequence[str] = ()) -> Render:
    """Return the writer of a table whose columns `by_hand` people write; the first column names a row."""

    def render(before: str) -> str:
        old = {row.get(columns[0], ""): row for row in table(before)}
        full = [[*row, *(old.get(row[0], {}).get(column, TO_DO) for column in by_hand)] for row in rows()]
        return write_table([*columns, *by_hand], full)

    return render


def _fixed(text: str) -> Render:
    return lambda before: text


def code(text: str) -> str:
    """Return a text as code, or nothing where there is none."""
    return f"`{text}`" if text else ""


def _types_that_fit() -> Rows:
    """Return by type of an output into which inputs edges may lead, and where the output is a stream."""
    pairs = json.loads((ROOT / "tests" / "conformance" / "slot_pairs.json").read_text(encoding="utf-8"))
    plain = {place: slot for place, slot in enumerate(pairs["slots"]) if "matchCategories" not in slot}
    taken: dict[str, list[str]] = {slot["dataFlowType"]: [] for slot in plain.values()}
    for place, source in plain.items():
        into = [p for p, slot in plain.items() if "isStream" not in slot and pairs["verdicts"][place][p] == "."]
        kinds = [str(plain[p]["dataFlowType"]) for p in into]
        taken[source["dataFlowType"]].append("all" if len(kinds) == len(taken) else ", ".join(map(code, kinds)))
    return [(code(kind), *cells) for kind, cells in taken.items()]


# --- hooks --------------------------------------------------------------------------------------------


def _hook(name: str) -> Render:
    hook = facts.hooks()[name]
    info = hook.info
    declared = f"`{info.permission}`"
    if info.field:
        declared += f"; declaring `{info.field}:` in the manifest is enough"
    elif info.permission == "services.override":
        declared = "the service's name under `permissions.services.override`"
    used = [argument for argument in (*info.arguments, "context") if re.search(rf"\b{argument}\b", info.example)]
    kind = "async def" if "await " in info.example else "def"
    doc = " ".join((hook.function.__doc__ or "").split())
    facts_of_it = [declared, info.level, info.policy, code(info.caller)]
    return _fixed(
        f"{info.description}\n\n"
        f"```python\n{facts.signature(name, hook.function)}\n```\n\n"
        f"{write_table(['permission', 'level', 'policy', 'called by'], [facts_of_it])}\n"
        f"{doc}\n\n"
        f"```python\n@hookimpl\n{kind} {name}({', '.join(used)}):\n    {info.example}\n```\n"
    )


# --- permissions --------------------------------------------------------------------------------------


def _permissions(rows: Callable[[PermissionInfo], list[str] | None], columns: Sequence[str]) -> Render:
    """Return the writer of a table of permissions; `rows` returns the cells before level and meaning."""

    def found() -> Iterator[list[str]]:
        for permission in facts.all_permissions().values():
            first = rows(permission)
            if first is not None:
                yield [*first, permission.level, permission.description]

    return _table([*columns, "level", "what it lets a plugin do"], lambda: list(found()))


def _server_hooks(permission: PermissionInfo) -> list[str] | None:
    names = [f"[`{n}`](hooks.md#{n})" for n, h in facts.hooks().items() if h.info.permission == permission.name]
    return [code(permission.name), ", ".join(names)] if permission.name.startswith("hook:server:") else None


def _client_hooks(permission: PermissionInfo) -> list[str] | None:
    event = permission.name.removeprefix("hook:client:")
    return [code(permission.name), code(event)] if permission.name in CLIENT_HOOKS else None


def _beginning(prefix: str) -> Callable[[PermissionInfo], list[str] | None]:
    def row(permission: PermissionInfo) -> list[str] | None:
        rest = permission.name.removeprefix(prefix)
        return [code(permission.name), code(rest)] if permission.name.startswith(prefix) else None

    return row


def _front_end(permission: PermissionInfo) -> list[str] | None:
    modes = {name: "frontend" if mode == "page" else f"frontend.mode: {mode}" for mode, (name, *_) in FRONTENDS.items()}
    return [code(permission.name), code(modes[permission.name])] if permission.name in modes else None


def _use(permission: PermissionInfo) -> list[str] | None:
    prefix = "services.use:"
    if not permission.name.startswith(prefix):
        return None
    methods = facts.methods_by_permission().get(permission.name.removeprefix(prefix), [])
    return [code(permission.name), ", ".join(map(code, methods)) or "every method of every service"]


def _aliases() -> Render:
    return _table(["written", "means"], lambda: [[code(alias), code(name)] for alias, name in ALIASES.items()])


# --- the studio ---------------------------------------------------------------------------------------


def _places(names: Mapping[str, str], column: str) -> Render:
    def rows() -> Rows:
        return [[code(name), ", ".join(map(code, studio.places()[name])) or "nothing"] for name in names]

    return _table([column, "what it is given"], rows, by_hand=["where it is"])


def _calls() -> Render:
    def rows() -> Rows:
        return [[code(path)] for path in studio.interface("ExtensionApi")]

    return _table(["call"], rows, by_hand=["what it does", "permission"])


def _events_of_hooks() -> Render:
    def rows() -> Rows:
        return [
            [code(name), code(canonical(name)), ", ".join(map(code, members))]
            for name, (_, members) in studio.client_hooks().items()
        ]

    return _table(["hook", "permission", "its event"], rows, by_hand=["when it is called"])


# --- the manifest -------------------------------------------------------------------------------------


def _fields() -> Render:
    def rows() -> Rows:
        return [[code(f.path), f.kind, "required" if f.required else f.default] for f in facts.fields(Manifest)]

    return _table(["field", "value", "default"], rows, by_hand=["meaning"])


# --- services -----------------------------------------------------------------------------------------


def _service(interface: type[ServiceInterface]) -> Render:
    methods = facts.methods(interface)
    module = interface.__module__
    source = f"../{'' if module.startswith('tavern_host.') else 'plugins/'}{module.replace('.', '/')}.py"
    rows = []
    for method in methods:
        info = method.info
        kind = "acts" if info.is_acting else "reads"
        level = info.level if info.permission else ""
        rows.append([code(method.name), kind, code(info.permission or ""), level, str(info.since), method.sentence])
    signatures = "\n\n".join(method.text for method in methods)
    return _fixed(
        f"{facts.first_sentence(interface)}\n\n"
        f"Key `{facts.key_of(interface)}`, interface `{interface.__name__}` in [`{module}`]({source}), "
        f"version {interface.service_version}.\n\n"
        f"```python\n{signatures}\n```\n\n"
        + write_table(["method", "reads or acts", "permission", "level", "since", "what it does"], rows)
    )


# --- the command line ---------------------------------------------------------------------------------


def _commands(owner: str) -> Render:
    return lambda before: "\n".join(_command(c.info) for c in facts.commands() if c.owner == owner)


def _command(info: CommandInfo) -> str:
    words = [f"tavern {info.name}", *(_usage(p) for p in info.parameters)]
    text = f"#### tavern {info.name}\n\n{info.help}\n\n```text\n{' '.join(words)}\n```\n"
    if info.standalone:
        text += "\nIt needs no project.\n"
    if info.at_server:
        text += "\nThe server of the project carries it out where one runs; with `--here` this process does.\n"
    if info.parameters:
        columns = ["parameter", "value", "default", "meaning"]
        text += "\n" + write_table(columns, [_parameter(p) for p in info.parameters])
    return text


def _usage(parameter: CommandParameter) -> str:
    name = parameter.name
    if not name.startswith("--"):
        name = name.upper().replace("-", "_")
    elif parameter.type != "flag":
        name = f"{name} {parameter.type.upper()}"
    name += " …" if parameter.multiple else ""
    return name if parameter.required else f"[{name}]"


def _parameter(parameter: CommandParameter) -> list[str]:
    kind = f"{parameter.type}, several" if parameter.multiple else parameter.type
    default = (
        "required" if parameter.required else ("" if parameter.default in (None, "") else f"`{parameter.default}`")
    )
    return [code(parameter.name), kind, default, parameter.help]


def _global_options() -> Render:
    return _table(
        ["option", "meaning"], lambda: [[code(option), text] for option, text in facts.global_options().items()]
    )


def _variables() -> Render:
    return _table(["variable"], lambda: [[code(name)] for name in facts.environment_variables()], by_hand=["meaning"])


# --- errors -------------------------------------------------------------------------------------------


def _errors() -> Render:
    def rows() -> Iterator[list[str]]:
        for name, classes in facts.errors().items():
            retry = {cls.retryable for cls in classes}
            word = "sometimes" if len(retry) > 1 else ("yes" if True in retry else "no")
            raised = ", ".join(code(cls.__name__) for cls in classes)
            yield [code(name), raised, word, " ".join((classes[0].__doc__ or "").split())]

    return _table(["code", "class", "retryable", "meaning"], lambda: list(rows()), by_hand=["HTTP", "exit"])


# --- all ----------------------------------------------------------------------------------------------


@cache
# --- routes -------------------------------------------------------------------------------------------


def _routes(owner: str) -> Render:
    def rows() -> Rows:
        found = []
        for path, item in facts.openapi()["paths"].items():
            for method, operation in item.items():
                if operation["tags"] == [owner]:
                    found.append([code(f"{method.upper()} {path}"), operation["x-access"], *_types(operation)])
        return found

    return _table(["route", "needs", "takes", "answers with", "what it does"], rows)


def _types(operation: dict[str, Any]) -> Iterator[str]:
    """Yield what a route takes, what it answers with, and its summary."""
    query = [code(f"?{one['name']}=") for one in operation.get("parameters", ()) if one["in"] == "query"]
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    yield ", ".join([*(_type(body["schema"]) for body in bodies), *query])
    status, done = next(iter(operation["responses"].items()))
    answers = [_type(one["schema"]) or code(kind) for kind, one in done.get("content", {}).items()]
    yield ", ".join([*([] if status == "200" else [status]), *answers])
    yield operation["summary"]


def _type(schema: dict[str, Any]) -> str:
    """Return the type that a schema describes, as a reader of JSON knows it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower().replace('.', '')})" if name != "JsonValue" else "any JSON"
    if "enum" in schema or "const" in schema:
        return " or ".join(code(str(one)) for one in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema.get("anyOf", schema.get("oneOf"))))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'any JSON'}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties']) or 'any JSON'}"
    kind = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null"}
    return kind.get(schema.get("type", ""), schema.get("type", ""))


def _models() -> Render:
    parts = []
    for name, schema in facts.openapi()["components"]["schemas"].items():
        if name == "JsonValue":
            continue
        described = " ".join(schema.get("description", "").split())
        rows = [
            [code(field), f"{_type(one)}{'' if field in schema.get('required', ()) else ', may be left out'}"]
            for field, one in schema.get("properties", {}).items()
        ]
        fields = write_table(["field", "value"], rows) if rows else f"{_type(schema)}\n"
        parts.append(f"### {name}\n\n{described}\n\n{fields}".replace("\n\n\n\n", "\n\n"))
    return _fixed("\n".join(parts))


@cache
def references() -> dict[str, dict[str, Render]]:
    """Return the writer of each reference part, by page and name."""
    own = "permission"
    return {
        "docs/hooks.md": {name: _hook(name) for name in facts.hooks()},
        "docs/permissions.md": {
            "server hooks": _permissions(_server_hooks, [own, "hook"]),
            "client hooks": _permissions(_client_hooks, [own, "in the browser"]),
            "wrap": _permissions(_beginning("ui.wrap:"), [own, "component"]),
            "override": _permissions(_beginning("ui.override:"), [own, "component"]),
            "inject": _permissions(_beginning("ui.inject:"), [own, "outlet"]),
            "services.override": _permissions(_beginning("services.override:"), [own, "service"]),
            "services.use": _permissions(_use, [own, "methods"]),
            "events": _permissions(_events, [own, "events"]),
            "code": _permissions(_beginning("code:"), [own, "content"]),
            "front end": _permissions(_front_end, [own, "declared by"]),
            "aliases": _aliases(),
        },
        "docs/studio-extensions.md": {
            "calls": _calls(),
            "client hooks": _events_of_hooks(),
            "outlets": _places(OUTLETS, "outlet"),
            "parts": _places(COMPONENTS, "part"),
        },
        "docs/manifest.md": {"fields": _fields()},
        "docs/workflows.md": {
            "types that fit": _table(["an output of type", "goes into", "a stream of it goes into"], _types_that_fit)
        },
        "docs/services.md": {name: _service(interface) for name, interface in interfaces().items()},
        "docs/cli.md": {
            "global options": _global_options(),
            "environment": _variables(),
            **{owner: _commands(owner) for owner in facts.command_owners()},
        },
        "docs/errors.md": {"codes": _errors()},
        "docs/api.md": {**{owner: _routes(owner) for owner in facts.route_owners()}, "models": _models()},
    }


def _events(permission: PermissionInfo) -> list[str] | None:
    kind, _, pattern = permission.name.partition(":")
    return [code(permission.name), facts.EVENT_PATTERNS[pattern]] if kind.startswith("events.") else None


def rewritten(page: Page, parts: dict[str, Render]) -> str:
    """Return a page's text with its reference parts written anew."""
    return page.with_references({n: render(page.references[n]) for n, render in parts.items() if n in page.references})
