"""From the JSON of a `*.tool.json`, in either published form, to a `ToolDefinition`.

The forms are `id` + `implementation`, and `toolId` + `handler`. Nothing
is looked up here: whether a workflow, node or service exists is the registry's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, get_args

from pydantic import ValidationError

from tavern_host.contracts.documents import json_path, json_type
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.settings import SettingItem
from tavern_host.contracts.tools import ToolCaching, ToolDefinition, ToolImplementation, ToolKind, ToolRate
from tavern_scripts.api.scripts import LANGUAGE_SUFFIXES, RunnableLanguage
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.parameters import Parameters
from tavern_tools.catalog.schemas import Location, Schema, schema_problems
from tavern_tools.catalog.versions import read_version

RESERVED_PREFIXES = {"workflow:": "workflows", "node:": "node types"}
"""Ids with these prefixes are made by the host, and of what."""

DEFAULT_CACHE_SECONDS = 300.0
"""How long results of a tool are cached that says no more than `"cache": true`."""

DEPENDENCY_KINDS = ("tool", "service", "node", "workflow")

KINDS: dict[str, ToolKind] = {
    "workflow": "workflow",
    "node": "node",
    "service": "service",
    "service-method": "service",
    "script": "script",
    "external-script": "script",
}
_LANGUAGES: tuple[RunnableLanguage, ...] = get_args(RunnableLanguage)
_SPELLINGS = {
    "workflow_id": ("workflowId",),
    "node_type": ("nodeType",),
    "service": ("service", "serviceName"),
    "method": ("method", "methodName"),
    "command": ("command",),
    "script_path": ("scriptPath",),
    "language": ("language",),
}
_FURTHER = ("entryPoint", "protocol", "settingsOf")
_PROTOCOLS = ("stdio", "channel")
_ACCESS = {"fileAccess": ("allowRead", "allowWrite"), "networkAccess": ("allowHosts",)}
_KNOWN = (
    *("id", "toolId", "displayName", "description", "version", "implementation", "handler", "parameters"),
    *("output", "configSchema", "securityContext", "examples", "tags", "async", "readOnly", "idempotent", "cache"),
    *("volatile", "timeout", "rateLimit", "concurrency", "requiresApproval", "permissions", "dependencies", "$schema"),
)
_EXAMPLE = ("description", "input", "expectedOutput")
_MAX_ID = 200


@dataclass(frozen=True)
class Finding:
    """Something about a tool's definition: the place in it and what is wrong there. A definition with
    nothing but warnings is used. `mark` is given where the location alone does not say line and column."""

    location: Location
    message: str
    warning: bool = False
    mark: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{json_path(*self.location)}: {self.message}"


def read_definition(
    document: Mapping[str, Any], *, source: str, plugin: str | None
) -> tuple[ToolDefinition | None, list[Finding]]:
    """Return a tool's definition and everything that is wrong or odd about it; None where it cannot be used.

    `parameters` is in the definition's `model_fields_set` only if the document gives it.
    """
    reader = _Reader(document, plugin is not None)
    implementation = reader.implementation()
    values: dict[str, Any] = {
        "id": reader.tool_id(),
        "implementation": implementation,
        "display_name": reader.value("displayName", str),
        "description": reader.value("description", str),
        "version": reader.version(),
        "parameters": reader.schema("parameters"),
        "output": reader.schema("output"),
        "config_schema": reader.items("configSchema", dict),
        "security_context": reader.security(),
        "examples": reader.items("examples", dict),
        "tags": reader.items("tags", str),
        "is_async": reader.value("async", bool),
        "read_only": reader.value("readOnly", bool),
        "idempotent": reader.value("idempotent", bool),
        "volatile": reader.value("volatile", bool),
        "cache": reader.cache(),
        "timeout": reader.timeout(implementation),
        "rate_limit": reader.rate_limit(),
        "concurrency": reader.whole_number("concurrency"),
        "requires_approval": reader.approval(),
        "permissions": reader.items("permissions", str),
        "dependencies": reader.items("dependencies", str),
    }
    reader.look_at_dependencies(values["dependencies"] or ())
    if plugin is None:  # those of a plugin are the kernel's, who says what is wrong with them
        reader.look_at_settings(values["config_schema"] or ())
    reader.look_for_misspelled_keys()
    if any(not finding.warning for finding in reader.findings):
        return None, reader.findings
    present = {name: value for name, value in values.items() if value is not None}
    definition = ToolDefinition(**present, source=source, plugin=plugin)
    return definition, [*reader.findings, *_example_findings(definition)]


def definition_problems(definition: ToolDefinition) -> list[Finding]:
    """Return the mistakes of a definition that came from code instead of a file."""
    reader = _Reader({"id": definition.id})
    reader.tool_id()
    return [*reader.findings, *content_findings(definition)]


def content_findings(definition: ToolDefinition) -> list[Finding]:
    """Return the mistakes in the implementation, the JSON Schemas and the limits of a definition."""
    reader = _Reader(
        {
            "parameters": definition.parameters,
            "output": definition.output,
            "requiresApproval": definition.requires_approval,
            "timeout": definition.timeout,
            "concurrency": definition.concurrency,
            "securityContext": definition.security_context,
        }
    )
    for name in _missing(definition.implementation):
        reader.fail(("implementation",), f"a {definition.kind} tool needs {name}")
    reader.schema("parameters")
    reader.schema("output")
    reader.approval()
    reader.timeout(None)
    reader.whole_number("concurrency")
    reader.security()
    reader.look_at_dependencies(definition.dependencies)
    return [finding for finding in reader.findings if not finding.warning]


def dependency(text: str) -> tuple[str, str]:
    """Return which kind of thing a dependency is and what it is called; what names no kind is a tool."""
    kind, colon, name = text.partition(":")
    return (kind, name) if colon and kind in DEPENDENCY_KINDS else ("tool", text)


def _missing(implementation: ToolImplementation) -> list[str]:
    if implementation.kind == "workflow":
        return [] if implementation.workflow_id else ['"workflowId"']
    if implementation.kind == "node":
        return [] if implementation.node_type else ['"nodeType"']
    if implementation.kind == "service":
        pairs = (("service", implementation.service), ("method", implementation.method))
        return [f'"{name}"' for name, value in pairs if not value]
    if implementation.command:
        return []
    if implementation.script_path:
        is_clear = implementation.language or PurePosixPath(implementation.script_path).suffix in LANGUAGE_SUFFIXES
        known = ", ".join(LANGUAGE_SUFFIXES)
        return [] if is_clear else [f'"language" beside its "scriptPath", or a name that ends with one of {known}']
    return ['"command", or "scriptPath"']


def _example_findings(definition: ToolDefinition) -> list[Finding]:
    """Return where examples are not what the tool's schemas allow: warnings."""
    found: list[Finding] = []
    parameters = Parameters(definition.parameters) if "parameters" in definition.model_fields_set else None
    output = Schema(definition.output) if definition.output is not None else None
    for index, example in enumerate(definition.examples):
        value = example.get("input")
        other = [key for key in example if key not in _EXAMPLE]
        if value is None and other:
            what = 'is not read: the arguments of an example stand in "input"'
            found.append(Finding(("examples", index, other[0]), what, True))
        elif value is not None and not isinstance(value, dict):
            found.append(Finding(("examples", index, "input"), f"expected an object, got {json_type(value)}", True))
        elif value is not None and parameters is not None:
            at: Location = ("examples", index, "input")
            found += [Finding((*at, *place), said, True) for place, said in parameters.mistakes(value)]
        if output is not None and "expectedOutput" in example:
            at = ("examples", index, "expectedOutput")
            found += [Finding((*at, *place), said, True) for place, said in output.mistakes(example["expectedOutput"])]
    return found


@dataclass
class _Reader:
    document: Mapping[str, Any]
    is_of_plugin: bool = False
    findings: list[Finding] = field(default_factory=list)

    def fail(self, location: Location, message: str) -> None:
        self.findings.append(Finding(location, message))

    def warn(self, location: Location, message: str) -> None:
        self.findings.append(Finding(location, message, warning=True))

    def value(self, key: str, kind: type, parent: Mapping[str, Any] | None = None, at: Location = ()) -> Any:
        value = (self.document if parent is None else parent).get(key)
        if value is None:
            return None
        if not isinstance(value, kind):
            self.fail((*at, key), f"expected {_article(kind)}, got {json_type(value)}: {quoted(value)}")
            return None
        return value

    def items(
        self, key: str, kind: type, parent: Mapping[str, Any] | None = None, at: Location = ()
    ) -> list[Any] | None:
        items: list[Any] | None = self.value(key, list, parent, at)
        for index, item in enumerate(items or ()):
            if not isinstance(item, kind):
                self.fail((*at, key, index), f"expected {_article(kind)}, got {json_type(item)}")
        return items

    def one_of(self, first: str, second: str, kind: type) -> tuple[str, Any]:
        """Return the key that is used, and its value, of two spellings of one thing."""
        used = [key for key in (first, second) if self.document.get(key) is not None]
        if not used:
            self.fail((), f'"{first}" is missing (or "{second}", in the other form)')
            return first, None
        if len(used) == 2 and self.document[first] != self.document[second]:
            self.fail((second,), f'says something else than "{first}"; give one of the two')
        return used[0], self.value(used[0], kind)

    def tool_id(self) -> str | None:
        key, tool_id = self.one_of("id", "toolId", str)
        if tool_id is None:
            return None
        prefix = next((prefix for prefix in RESERVED_PREFIXES if tool_id.startswith(prefix)), None)
        if not tool_id.strip() or tool_id != tool_id.strip() or not tool_id.isprintable():
            self.fail((key,), f"expected a name without spaces around it, got {quoted(tool_id)}")
        elif len(tool_id) > _MAX_ID:
            self.fail((key,), f"expected at most {_MAX_ID} characters, got {len(tool_id)}")
        elif "@" in tool_id:
            self.fail(
                (key,), f'"@" stands between an id and a range of versions; choose another than {quoted(tool_id)}'
            )
        elif prefix is not None:
            made_from = RESERVED_PREFIXES[prefix]
            self.fail((key,), f'ids that begin with "{prefix}" are made from {made_from}; choose another')
        return str(tool_id)

    def version(self) -> str | None:
        version: str | None = self.value("version", str)
        if version is not None and read_version(version) is None:
            self.warn(("version",), f"{quoted(version)} is no version like 1.2.3: no range of versions finds it")
        return version

    def schema(self, key: str) -> dict[str, Any] | None:
        schema = self.document.get(key)
        if schema is None:
            return None
        problems = schema_problems(schema, (key,))
        for place, message in problems:
            self.fail(place, message)
        if problems:
            return None
        if key == "parameters" and schema.get("type", "object") != "object":
            self.fail(("parameters", "type"), f'expected "object", got {quoted(schema["type"])}')
            return None
        for keyword, place, message in Parameters(schema).oddities() if key == "parameters" else ():
            say = self.warn if keyword == "default" else self.fail
            say((key, *place), message)
        return dict(schema)

    def implementation(self) -> ToolImplementation | None:
        key, section = self.one_of("implementation", "handler", dict)
        if section is None:
            return None
        kind = section.get("type")
        if not isinstance(kind, str) or kind not in KINDS:
            expected = ", ".join(quoted(name) for name in KINDS)
            hint = did_you_mean(kind, KINDS) if isinstance(kind, str) else ""
            self.fail((key, "type"), f"expected one of {expected}, got {quoted(kind)}{hint}")
            return None
        before = len(self.findings)
        values: dict[str, Any] = {"kind": KINDS[kind]}
        for name, spellings in _SPELLINGS.items():
            spelled = [self.value(spelling, str, section, (key,)) for spelling in spellings]
            values[name] = next((value for value in spelled if value is not None), None)
        for spelling in _FURTHER:
            self.value(spelling, str, section, (key,))
        if self.is_of_plugin and "tools" in section:
            self.fail((key, "tools"), "scripts of plugins are given no tools, those of the project are")
        else:
            self.items("tools", str, section, (key,))
        protocol = section.get("protocol")
        if isinstance(protocol, str) and protocol not in _PROTOCOLS:
            known = ", ".join(quoted(name) for name in _PROTOCOLS)
            self.fail((key, "protocol"), f"expected one of {known}, got {quoted(protocol)}")
        values["timeout"] = self.above_0("timeout", "milliseconds", section, (key,))
        if values["language"] is not None and values["language"] not in _LANGUAGES:
            known = ", ".join(quoted(name) for name in _LANGUAGES)
            self.fail((key, "language"), f"expected one of {known}, got {quoted(values['language'])}")
        if len(self.findings) > before:
            return None
        named = {"type", "kind", "timeout", *(s for spellings in _SPELLINGS.values() for s in spellings), *values}
        further = {name: value for name, value in section.items() if name not in named}
        implementation = ToolImplementation(
            **{name: value for name, value in values.items() if value is not None}, **further
        )
        for missing in _missing(implementation):
            self.fail((key,), f"a tool of type {quoted(kind)} needs {missing}")
        return implementation

    def timeout(self, implementation: ToolImplementation | None) -> float | None:
        """Return the tool's time limit, wherever it stands."""
        inner = implementation.timeout if implementation is not None else None
        outer = self.above_0("timeout", "milliseconds")
        if inner is not None and outer is not None and inner != outer:
            self.warn(("timeout",), f"says {outer:g}, the implementation {inner:g}: {outer:g} is used")
        return inner if outer is None else outer

    def above_0(self, key: str, what: str, parent: Mapping[str, Any] | None = None, at: Location = ()) -> float | None:
        value = (self.document if parent is None else parent).get(key)
        if value is None:
            return None
        if not _is_number(value) or not 0 < value < math.inf:
            self.fail((*at, key), f"expected {what}, a number above 0, got {quoted(value)}")
            return None
        return float(value)

    def whole_number(self, key: str, parent: Mapping[str, Any] | None = None, at: Location = ()) -> int | None:
        value = (self.document if parent is None else parent).get(key)
        if value is None:
            return None
        if not _is_number(value) or value != value // 1 or not 1 <= value < 2**31:
            self.fail((*at, key), f"expected a whole number from 1, got {quoted(value)}")
            return None
        return int(value)

    def cache(self) -> ToolCaching | None:
        section = self.document.get("cache")
        if section is None or section is False:
            return None
        if section is True:
            return ToolCaching(seconds=DEFAULT_CACHE_SECONDS)
        if not isinstance(section, dict):
            seconds = self.above_0("cache", "true, seconds or an object with them")
            return None if seconds is None else ToolCaching(seconds=seconds)
        self._known_keys(section, ("seconds", "shared"), ("cache",))
        seconds = self.above_0("seconds", "seconds", section, ("cache",))
        shared = self.value("shared", bool, section, ("cache",))
        if section.get("seconds") is None:
            seconds = DEFAULT_CACHE_SECONDS
        return None if seconds is None else ToolCaching(seconds=seconds, shared=bool(shared))

    def rate_limit(self) -> ToolRate | None:
        section = self.value("rateLimit", dict)
        if section is None:
            return None
        self._known_keys(section, ("calls", "seconds"), ("rateLimit",))
        for key in ("calls", "seconds"):
            if section.get(key) is None:
                self.fail(("rateLimit",), f'"{key}" is missing: a limit is {{"calls": 10, "seconds": 60}}')
        calls = self.whole_number("calls", section, ("rateLimit",))
        seconds = self.above_0("seconds", "seconds", section, ("rateLimit",))
        return None if calls is None or seconds is None else ToolRate(calls=calls, seconds=seconds)

    def approval(self) -> bool | dict[str, Any] | None:
        value = self.document.get("requiresApproval")
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            self.fail(("requiresApproval",), f"expected true, false or a JSON Schema, got {quoted(value)}")
            return None
        return self.schema("requiresApproval")

    def security(self) -> dict[str, Any] | None:
        """Return the access that a tool asks for, as the document has it."""
        section: dict[str, Any] | None = self.value("securityContext", dict)
        if section is None:
            return None
        at: Location = ("securityContext",)
        self._known_keys(section, (*_ACCESS, "requiredCapabilities"), at, only_near=True)
        self.items("requiredCapabilities", str, section, at)
        for key, lists in _ACCESS.items():
            access = self.value(key, dict, section, at) or {}
            for name in access:
                if name not in lists:
                    self.fail((*at, key, name), f"is not a key of {key}{did_you_mean(name, lists)}")
            for name in lists:
                self.items(name, str, access, (*at, key))
        return section

    def look_at_settings(self, options: Sequence[Any]) -> None:
        for index, option in enumerate(options):
            if not isinstance(option, dict):
                continue  # that was reported
            try:
                SettingItem.model_validate(option)
            except ValidationError as error:
                for mistake in error.errors(include_url=False, include_input=False):
                    self.warn(("configSchema", index, *mistake["loc"]), f"{mistake['msg']}; this setting is left out")

    def look_at_dependencies(self, dependencies: Any) -> None:
        for index, text in enumerate(dependencies):
            if isinstance(text, str) and not dependency(text)[1].strip():
                kinds = ", ".join(f"{kind}:…" for kind in DEPENDENCY_KINDS)
                self.fail(("dependencies", index), f"expected {kinds} or the id of a tool, got {quoted(text)}")

    def look_for_misspelled_keys(self) -> None:
        self._known_keys(self.document, _KNOWN, ())

    def _known_keys(
        self, section: Mapping[str, Any], known: tuple[str, ...], at: Location, *, only_near: bool = False
    ) -> None:
        for key in section:
            hint = did_you_mean(key, known) if key not in known else ""
            if hint or (at and key not in known and not only_near):
                what = at[-1] if at else "a tool"
                self.warn((*at, key), f"is not a key of {what} and is left unread{hint}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _article(kind: type) -> str:
    names: dict[type, str] = {str: "text", dict: "an object", list: "an array", bool: "true or false"}
    return names[kind]
