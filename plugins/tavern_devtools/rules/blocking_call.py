"""Nothing in an `async def`, or in a `def` that the host calls on the event loop, keeps it waiting."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem

_PROGRAMS = ("run", "call", "check_call", "check_output", "getoutput")
_REQUESTS = ("get", "post", "put", "patch", "delete", "head", "request")
_PROGRAM = "await asyncio.create_subprocess_exec(…)"
_CLIENT = "an asynchronous client such as aiohttp, or await asyncio.to_thread(…)"
_INSTEAD = {
    "time.sleep": "await asyncio.sleep(…)",
    "builtins.input": "await asyncio.to_thread(…)",
    **dict.fromkeys(("os.system", "os.popen", *(f"subprocess.{name}" for name in _PROGRAMS)), _PROGRAM),
    **{f"{library}.{name}": _CLIENT for library in ("requests", "httpx") for name in _REQUESTS},
    "urllib.request.urlopen": _CLIENT,
}
"""What waits, by its full name, with what does not."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FILTERS = ("tavern_before_", "tavern_after_")
"""How hooks are called whose `def` implementations are computations, run inline; others have a thread."""
_INNER = (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef, ast.ClassDef)


def check(subject: Subject) -> Iterator[Problem]:
    """Yield the calls that wait where everything else in the host waits with them."""
    for path, module in subject.modules.items():
        names = _imported(module)
        for function in (one for one in ast.walk(module) if isinstance(one, _FUNCTIONS) and _is_inline(one)):
            for call in _calls(function):
                called = _full_name(call.func, names)
                if called in _INSTEAD:
                    what = "async function" if isinstance(function, ast.AsyncFunctionDef) else "filter"
                    message = f"{called} in the {what} {function.name} keeps the whole host waiting"
                    yield Problem(
                        message=message, hint=f"use {_INSTEAD[called]}", file=subject.shown(path), line=call.lineno
                    )


def _is_inline(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function runs on the event loop: one that is async, or the `def` of a filter."""
    return isinstance(function, ast.AsyncFunctionDef) or function.name.startswith(_FILTERS)


def _imported(module: ast.Module) -> dict[str, str]:
    """Return the full name of each name that a module imports."""
    names = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return names


def _calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """Yield the calls that a function makes itself: what is defined in it may run elsewhere."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _INNER):
            continue
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def _full_name(called: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(called, ast.Attribute):
        parts.append(called.attr)
        called = called.value
    if not isinstance(called, ast.Name):
        return ""
    first = names.get(called.id, f"builtins.{called.id}" if not parts and called.id == "input" else "")
    return ".".join([first, *reversed(parts)]) if first else ""
