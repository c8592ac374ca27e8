"""Runs inside of a sandbox: calls one function of a Python file with the input, and writes what it returns to the
result's own descriptor. Imports little, since importing would take longer than most functions run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any


def main(path: str, name: str) -> None:
    """Load the file at `path`, call its function `name`, and write the result."""
    given = json.load(sys.stdin.buffer)
    sys.argv = [path, *sys.argv[3:]]
    sys.path[0] = os.path.dirname(path)
    result = _function(path, name)(given)
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


async def _awaited(result: Any) -> Any:
    return await result


if __name__ == "__main__":  # call.py FILE FUNCTION ARGUMENT…
    main(sys.argv[1], sys.argv[2])
