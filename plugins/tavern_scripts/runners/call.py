"""Runs inside of a sandbox: calls one function of a Python file with the input, or with its fields, and writes what it
returns to the result's own descriptor. Imports little, since importing would take longer than most functions run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

_OBJECTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "Any", "object"})
_TAKES_MORE = 0x04
"""The flag of code that has `*args`."""


def main(path: str, name: str) -> None:
    """Load the file at `path`, call its function `name`, and write the result."""
    content = json.load(sys.stdin.buffer)
    sys.argv = [path, *sys.argv[3:]]
    sys.path[0] = os.path.dirname(path)
    function = _function(path, name)
    result = function(**content) if isinstance(content, dict) and _takes_fields(function) else function(content)
    if hasattr(result, "__await__"):
        import asyncio

        result = asyncio.run(_awaited(result))
    try:
        data = json.dumps(result, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        sys.exit(f"what {name} returned is no JSON: {error}")
    with open(int(os.environ["TAVERN_RESULT_FD"]), "wb") as channel:
        channel.write(data)


def _function(path: str, name: str) -> Any:
    file = os.path.basename(path)
    stem = file.partition(".")[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} is no Python file")
    module = sys.modules[stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        sys.exit(f"{file} has no function {name}, which is to be called")
    return function


def _takes_fields(function: Any) -> bool:
    """Return whether a function takes the fields of the input by name: any but one with a single parameter that has no
    annotation, or the annotation of an object."""
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(names) != 1:
        return bool(names) or not code.co_flags & _TAKES_MORE
    try:
        annotation = function.__annotations__.get(names[0])
    except NameError:  # of something that is imported for type checkers only
        return True
    if isinstance(annotation, str):
        name = annotation.strip("'\"").partition("[")[0].rpartition(".")[2].strip()
        annotation = function.__globals__.get(name, name)
    annotation = getattr(annotation, "__origin__", annotation)
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return not (annotation is None or named in _OBJECTS or dict in getattr(annotation, "__mro__", ()))


async def _awaited(result: Any) -> Any:
    return await result


if __name__ == "__main__":  # call.py FILE FUNCTION ARGUMENT…
    main(sys.argv[1], sys.argv[2])
