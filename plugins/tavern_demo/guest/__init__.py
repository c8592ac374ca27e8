"""A third-party plugin as anyone could write it: changes the input `greeting` of every run that has one."""

from __future__ import annotations

from tavern_host import hookimpl
from tavern_host.contracts.executions import RunRequest


@hookimpl
def tavern_before_execute(request: RunRequest) -> RunRequest | None:
    """Greet with more cheer."""
    greeting = request.inputs.get("greeting")
    if greeting is None:
        return None
    return request.model_copy(update={"inputs": {**request.inputs, "greeting": f"A very {str(greeting).lower()}"}})
