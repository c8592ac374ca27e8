"""Calls one after another: the steps of each chain in order, what they refer to, and where a chain stops."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator

from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.calls.references import Names
from tavern_tools.calls.results import failed
from tavern_tools.catalog.failures import ToolFailure

CallOne = Callable[[ToolCallRequest], Awaitable[ToolResult]]


async def carry_out(requests: list[ToolCallRequest], call_one: CallOne) -> list[ToolResult]:
    """Return the results of calls, one for each that was begun.

    A step that fails, or waits for a person, ends its chain unless it says `continue`; the next chain begins. Only
    what a text asked for holds references: a structured call means what it says.
    """
    results: list[ToolResult] = []
    for block in blocks(requests):
        names = Names(block[0].variables, block[0].request_id)
        for request in block:
            result = await _step(request, names, call_one)
            results.append(result)
            names.results[request.index] = result
            if result.status in ("error", "awaiting_approval") and request.on_error == "stop":
                break
    return results


def blocks(calls: list[ToolCallRequest]) -> Iterator[list[ToolCallRequest]]:
    """Yield the calls of each block of action text."""
    for _, block in itertools.groupby(calls, key=lambda request: (request.protocol, request.block)):
        yield list(block)


async def _step(request: ToolCallRequest, names: Names, call_one: CallOne) -> ToolResult:
    if request.protocol in (None, "native"):
        return await call_one(request)
    try:
        arguments, warnings = names.resolved(request.arguments)
    except ToolFailure as failure:
        return failed(request, failure)
    if arguments != request.arguments:
        request = request.model_copy(update={"arguments": arguments})
    result = await call_one(request)
    return result.model_copy(update={"warnings": [*warnings, *result.warnings]}) if warnings else result
