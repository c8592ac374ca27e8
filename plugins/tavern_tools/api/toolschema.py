"""The JSON Schema of tool files, for editors. What it lets through the reader of tool files still checks."""

from __future__ import annotations

from typing import Any

_TEXT, _FLAG, _TEXTS = {"type": "string"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}
_ABOVE_0 = {"type": "number", "exclusiveMinimum": 0}
_OBJECT = {"type": "object"}
_KINDS = ("workflow", "node", "service", "service-method", "script", "external-script")
_NEEDED = {"workflow": "workflowId", "node": "nodeType"}
_IMPLEMENTATION: dict[str, Any] = {
    "type": "object",
    "description": "How the tool is carried out.",
    "required": ["type"],
    "properties": {
        "type": {"enum": list(_KINDS)},
        "workflowId": _TEXT,
        "nodeType": _TEXT,
        **dict.fromkeys(
            ("service", "serviceName", "method", "methodName", "command", "scriptPath", "entryPoint"), _TEXT
        ),
        "language": {"enum": ["python", "nodejs", "bun", "wasm"]},
        "protocol": {"enum": ["stdio", "channel"]},
        "settingsOf": {
            **_TEXT,
            "description": "The tool of the same plugin whose settings (configSchema) it is given.",
        },
        "tools": _TEXTS,
        "timeout": {**_ABOVE_0, "description": "Milliseconds."},
    },
    "allOf": [
        {"if": {"properties": {"type": {"const": kind}}}, "then": {"required": [key]}} for kind, key in _NEEDED.items()
    ],
}
_CACHE = {"type": "object", "required": ["seconds"], "properties": {"seconds": _ABOVE_0, "shared": _FLAG}}
_RATE = {
    "type": "object",
    "required": ["calls", "seconds"],
    "properties": {"calls": {"type": "integer", "minimum": 1}, "seconds": _ABOVE_0},
}
_SECURITY = {
    "type": "object",
    "description": "What a script asks for; the operator's policy says what of it is granted.",
    "properties": {
        "fileAccess": {"type": "object", "properties": {"allowRead": _TEXTS, "allowWrite": _TEXTS}},
        "networkAccess": {"type": "object", "properties": {"allowHosts": _TEXTS}},
        "requiredCapabilities": {"type": "array", "items": {"enum": ["network", "write"]}},
    },
}
_EXAMPLE = {"type": "object", "properties": {"description": _TEXT, "input": _OBJECT, "expectedOutput": True}}
PROPERTIES: dict[str, Any] = {
    "$schema": {**_TEXT, "description": "The schema by which an editor checks the file."},
    "id": {**_TEXT, "description": "Its name, such as text:greet; toolId is the other spelling."},
    "toolId": _TEXT,
    "implementation": _IMPLEMENTATION,
    "handler": _IMPLEMENTATION,
    "displayName": {**_TEXT, "description": "A name for people."},
    "description": {**_TEXT, "description": "What it does and when to call it, for a language model."},
    "version": _TEXT,
    "parameters": {**_OBJECT, "description": "A JSON Schema of its arguments."},
    "output": {**_OBJECT, "description": "A JSON Schema of its result."},
    "configSchema": {"type": "array", "items": {"type": "object", "required": ["key", "type"]}},
    "securityContext": _SECURITY,
    "examples": {"type": "array", "items": _EXAMPLE},
    "tags": _TEXTS,
    **dict.fromkeys(("async", "readOnly", "idempotent", "volatile"), _FLAG),
    "cache": {"anyOf": [_FLAG, _ABOVE_0, _CACHE]},
    "timeout": {**_ABOVE_0, "description": "Milliseconds."},
    "rateLimit": _RATE,
    "concurrency": {"type": "integer", "minimum": 1},
    "requiresApproval": {"type": ["boolean", "object"]},
    "permissions": _TEXTS,
    "dependencies": _TEXTS,
}


def tool_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a tool file."""
    choices = [
        {"anyOf": [{"required": [one]} for one in pair]} for pair in (("id", "toolId"), ("implementation", "handler"))
    ]
    return {"type": "object", "title": "Tool", "properties": PROPERTIES, "allOf": choices}
