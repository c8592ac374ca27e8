"""From the JSON of a `*.tool.json`, in either published form, to a `ToolDefinition`.

The forms are `id` + `implementation` (`spec/000` §6.3) and `toolId` + `handler` (`spec/003` §2.2). Nothing
is looked up here: whether a workflow, node or service exists is the registry's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.documents import json_type
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation, ToolKind
from tavern_tools.naming import quoted
from tavern_tools.schemas import schema_problems

RESERVED_PREFIX = "workflow:"
"""Ids with this prefix are made from workflows (`spec/002` §2.2)."""

_KINDS: dict[str, ToolKind] = {
    "workflow": "workflow",
    "node": "node",
    "service": "service",
    "service-method": "service",
    "script": "script",
    "external-script": "script",
}
_LANGUAGES = ("python", "nodejs", "bun")
_SPELLINGS = {
    "workflow_id": ("workflowId",),
    "node_type": ("nodeType",),
    "service": ("service", "serviceName"),
    "method": ("method", "methodName"),
    "command": ("command",),
    "script_path": ("scriptPath",),
    "language": ("language",),
}
_KNOWN = (
    *("id", "toolId", "displayName", "description", "version", "implementation", "handler", "parameters"),
    *("output", "configSchema", "securityContext", "examples", "tags"),
)


@dataclass(frozen=True)
class Finding:
    """Something about a tool's definition: a JSON path into it and what is wrong there. A definition with
    nothing but warnings is used."""

    path: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def read_definition(
    document: Mapping[str, Any], *, source: str, plugin: str | None
) -> tuple[ToolDefinition | None, list[Finding]]:
    """Return a tool's definition and everything that is wrong or odd about it; None where it cannot be used.

    `parameters` is in the definition's `model_fields_set` only if the document gives it.
    """
    reader = _Reader(document)
    values: dict[str, Any] = {
        "id": reader.tool_id(),
        "implementation": reader.implementation(),
        "display_name": reader.value("displayName", str),
        "description": reader.value("description", str),
        "version": reader.value("version", str),
        "parameters": reader.schema("parameters"),
        "output": reader.schema("output"),
        "config_schema": reader.items("configSchema", dict),
        "security_context": reader.value("securityContext", dict),
        "examples": reader.items("examples", dict),
        "tags": reader.items("tags", str),
    }
    reader.look_for_misspelled_keys()
    if any(not finding.warning for finding in reader.findings):
        return None, reader.findings
    given = {name: value for name, value in values.items() if value is not None}
    return ToolDefinition(**given, source=source, plugin=plugin), reader.findings


def definition_problems(definition: ToolDefinition) -> list[Finding]:
    """Return what is wrong with a definition that came from code instead of a file."""
    reader = _Reader({"id": definition.id})
    reader.tool_id()
    return [*reader.findings, *content_findings(definition)]


def content_findings(definition: ToolDefinition) -> list[Finding]:
    """Return what is wrong with the implementation and the JSON Schemas of a definition."""
    reader = _Reader({"parameters": definition.parameters, "output": definition.output})
    for name in _missing(definition.implementation):
        reader.fail("$.implementation", f"a {definition.kind} tool needs {name}")
    reader.schema("parameters")
    reader.schema("output")
    return reader.findings


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
        return [] if implementation.language else ['"language" beside its "scriptPath"']
    return ['"command", or "scriptPath" and "language"']


@dataclass
class _Reader:
    document: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)

    def fail(self, path: str, message: str) -> None:
        self.findings.append(Finding(path, message))

    def value(self, key: str, kind: type, parent: Mapping[str, Any] | None = None, path: str = "$") -> Any:
        value = (self.document if parent is None else parent).get(key)
        if value is None:
            return None
        if not isinstance(value, kind):
            self.fail(f"{path}.{key}", f"expected {_article(kind)}, got {json_type(value)}: {quoted(value)}")
            return None
        return value

    def items(self, key: str, kind: type) -> list[Any] | None:
        items: list[Any] | None = self.value(key, list)
        for index, item in enumerate(items or ()):
            if not isinstance(item, kind):
                self.fail(f"$.{key}[{index}]", f"expected {_article(kind)}, got {json_type(item)}")
        return items

    def one_of(self, first: str, second: str, kind: type) -> tuple[str, Any]:
        """Return the key that is used, and its value, of two spellings of one thing."""
        used = [key for key in (first, second) if self.document.get(key) is not None]
        if not used:
            self.fail("$", f'"{first}" is missing (or "{second}", in the other form)')
            return first, None
        if len(used) == 2 and self.document[first] != self.document[second]:
            self.fail(f"$.{second}", f'says something else than "{first}"; give one of the two')
        return used[0], self.value(used[0], kind)

    def tool_id(self) -> str | None:
        key, tool_id = self.one_of("id", "toolId", str)
        if tool_id is None:
            return None
        if not tool_id.strip() or tool_id != tool_id.strip() or not tool_id.isprintable():
            self.fail(f"$.{key}", f"expected a name without spaces around it, got {quoted(tool_id)}")
        elif tool_id.startswith(RESERVED_PREFIX):
            self.fail(f"$.{key}", f'ids that begin with "{RESERVED_PREFIX}" are made from workflows; choose another')
        return str(tool_id)

    def schema(self, key: str) -> dict[str, Any] | None:
        schema = self.document.get(key)
        if schema is None:
            return None
        problems = schema_problems(schema, f"$.{key}")
        for path, message in problems:
            self.fail(path, message)
        if problems:
            return None
        if key == "parameters" and schema.get("type", "object") != "object":
            self.fail("$.parameters.type", f'expected "object", got {quoted(schema["type"])}')
            return None
        return dict(schema)

    def implementation(self) -> ToolImplementation | None:
        key, given = self.one_of("implementation", "handler", dict)
        if given is None:
            return None
        path = f"$.{key}"
        kind = given.get("type")
        if kind not in _KINDS:
            expected = ", ".join(quoted(name) for name in _KINDS)
            hint = did_you_mean(kind, _KINDS) if isinstance(kind, str) else ""
            self.fail(f"{path}.type", f"expected one of {expected}, got {quoted(kind)}{hint}")
            return None
        before = len(self.findings)
        values: dict[str, Any] = {"kind": _KINDS[kind]}
        for name, spellings in _SPELLINGS.items():
            spelled = [self.value(spelling, str, given, path) for spelling in spellings]
            values[name] = next((value for value in spelled if value is not None), None)
        values["timeout"] = self._timeout(given, path)
        if values["language"] is not None and values["language"] not in _LANGUAGES:
            known = ", ".join(quoted(name) for name in _LANGUAGES)
            self.fail(f"{path}.language", f"expected one of {known}, got {quoted(values['language'])}")
        if len(self.findings) > before:
            return None
        named = {"type", "kind", "timeout", *(s for spellings in _SPELLINGS.values() for s in spellings)}
        further = {name: value for name, value in given.items() if name not in named}
        implementation = ToolImplementation(
            **{name: value for name, value in values.items() if value is not None}, **further
        )
        for missing in _missing(implementation):
            self.fail(path, f"a tool of type {quoted(kind)} needs {missing}")
        return implementation

    def _timeout(self, given: Mapping[str, Any], path: str) -> float | None:
        timeout = given.get("timeout")
        if timeout is None:
            return None
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            self.fail(f"{path}.timeout", f"expected milliseconds, a number above 0, got {quoted(timeout)}")
            return None
        return float(timeout)

    def look_for_misspelled_keys(self) -> None:
        for key in self.document:
            hint = did_you_mean(key, _KNOWN) if key not in _KNOWN else ""
            if hint:
                message = f"is not a key of a tool and is left unread{hint}"
                self.findings.append(Finding(f"$.{key}", message, warning=True))


def _article(kind: type) -> str:
    names: dict[type, str] = {str: "text", dict: "an object", list: "an array"}
    return names[kind]
