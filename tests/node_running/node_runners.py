"""Opens `@node` objects of a test, as they are and behind the boundary of placement `loopback`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_devtools.loopback_nodes import transport_runner
from tavern_host.contracts.nodes import NodeRunner
from tavern_host.sdk.decorator import NodeCode
from tavern_nodes.node_runners import InProcessNodeRunner

RunnerOf = Callable[[Any], NodeRunner]


def direct(target: Any) -> NodeRunner:
    """Return the runner of a `@node` object that asks for no plugin's context."""
    code = target.__tavern_node__
    assert isinstance(code, NodeCode)
    return InProcessNodeRunner(code, context=None)  # type: ignore[arg-type]


def carried(target: Any) -> NodeRunner:
    """Return the same behind the boundary."""
    return transport_runner(direct(target), "acme", target.__tavern_node__.definition)
