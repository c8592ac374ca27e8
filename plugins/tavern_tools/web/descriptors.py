"""The routes that the plugin offers. What answers them is imported when one is asked for."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.http import MessageInfo, RouteInfo

_TASK = {"answer": "api.toolcalls:ToolTask"}
_PROJECT_FILE, _TOOL_FILE = "/api/files/{path}", "/api/tool-files/{name}"
_ROUTES: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "tool_routes": (
        ("GET", "/api/tools", "index", "The tools."),
        ("GET", "/api/tools/{id}", "show", "One tool."),
        (
            "POST",
            "/api/tools/execute",
            "execute",
            'Carry out action text (`{"text"}`) or one call (`{"toolId", "arguments"}`).',
        ),
    ),
    "task_routes": (
        ("GET", "/api/tasks", "index", "Tasks of tools, newest first."),
        ("GET", "/api/tasks/{id}", "show", "One task; with `?wait=SECONDS` as soon as it has ended within them."),
        ("POST", "/api/tasks/{id}/cancel", "cancel", "Cancel a task."),
        ("GET", "/api/approvals", "approvals", "Calls that wait for a decision."),
        (
            "POST",
            "/api/approvals/{id}",
            "decide",
            'Decide about a call: `{"decision": "approve" | "refuse", "arguments", "comment"}`; '
            'a question by `{"decision": "approve", "arguments": {"answer"}}`.',
        ),
    ),
    "file_routes": (
        ("GET", "/api/files", "index", "The files and folders in a folder of the project's files."),
        ("GET", _PROJECT_FILE, "show", "Stream a file, or ranges of it."),
        ("PUT", _PROJECT_FILE, "save", "Write a file: a text, or a Blob that `POST /api/blobs` has taken as a stream."),
        ("DELETE", _PROJECT_FILE, "delete", "Delete a file or an empty folder."),
    ),
    "editor_routes": (
        ("GET", "/api/tool-files", "index", "The project's tool files."),
        ("GET", _TOOL_FILE, "show", "A tool file with its script."),
        ("PUT", _TOOL_FILE, "save", "Write a tool file and the code of its script; 201 where there was none."),
        ("DELETE", _TOOL_FILE, "delete", "Delete a tool file, and its script."),
        ("POST", "/api/tool-check", "check", "Everything that is wrong with a tool file that is not saved."),
        ("POST", "/api/tool-draft", "draft", "What of a tool follows from the docstring and signature of its script."),
        ("POST", "/api/tool-try", "try_out", "Call a tool that is not saved."),
    ),
}
"""By the module that answers them."""
_TYPES: dict[str, dict[str, dict[str, Any]]] = {
    "tool_routes": {
        "index": {"query": "api.tools:ToolQuery", "answer": "tools:ToolDefinition[]"},
        "show": {"answer": "tools:ToolDefinition"},
        "execute": {"body": "ExecuteBody", "answer": "api.answers:ToolResults"},
    },
    "task_routes": {
        "index": {"query": "api.answers:TaskQuery", "answer": "api.answers:TaskPage"},
        "show": {**_TASK, "query": "api.answers:WaitQuery"},
        "cancel": _TASK,
        "approvals": {"query": "api.answers:TaskQuery", "answer": "api.answers:ApprovalPage"},
        "decide": {**_TASK, "body": "Decision"},
    },
    "file_routes": {
        "index": {"query": "FilesQuery", "answer": "api.projectfiles:FileListing"},
        "show": {"content_type": "*/*"},
        "save": {"body": "FileBody", "answer": "api.projectfiles:FileWritten"},
        "delete": {"answer": "api.projectfiles:FileDeleted"},
    },
    "editor_routes": {
        "index": {"answer": "api.toolfiles:ToolFile[]"},
        "show": {"answer": "api.toolfiles:ToolFile"},
        "save": {"body": "api.toolfiles:ToolSource", "answer": "api.toolfiles:ToolFile", "creates": True},
        "delete": {"query": "DeleteQuery", "answer": "host_api:Done"},
        "check": {"body": "NamedSource", "answer": "api.toolfiles:ToolFileCheck"},
        "draft": {"body": "CodeBody", "answer": "api.toolfiles:ToolDraft"},
        "try_out": {"body": "TryBody", "answer": "api.toolcalls:ToolResult"},
    },
}
"""What goes in and out of them, by module and function."""


def routes() -> list[RouteInfo | MessageInfo]:
    """Return the routes of tools, tasks, the project's files and its tool files, and the messages of sockets."""
    decision = MessageInfo(
        type="APPROVAL_DECISION",
        handler="tavern_tools.web.task_routes:on_decision",
        summary="Decide about a call, or answer its question.",
    )
    found: list[RouteInfo | MessageInfo] = [
        RouteInfo.of_module(f"tavern_tools.web.{module}", *row, _TYPES[module][row[2]])
        for module, rows in _ROUTES.items()
        for row in rows
    ]
    return [*found, decision]
