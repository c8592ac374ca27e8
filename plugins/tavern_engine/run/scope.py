"""What the levels of one run share."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.run.feed import Feed
from tavern_engine.run.loopdiary import LoopState
from tavern_engine.run.turns import Turns
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import NodeInstance


@dataclass(slots=True)
class Scope:
    """One run. `call` is the context of what its nodes do, `instances` the nodes with state that are open, by number.

    `loops` are what loops had come to when the run was interrupted, by the loop's id. `interface` says which interface
    outputs the streams of the top level go out by: by node and output, their keys. `is_tainted`: in this loop something
    stood in for what a node should have given. `processes` is the line in which
    nodes wait that run in a process of their own.
    """

    run_id: str
    call: CallContext
    feed: Feed
    log: logging.Logger
    instances: dict[int, NodeInstance] = field(default_factory=dict)
    loops: Mapping[str, LoopState] = field(default_factory=dict)
    interface: Mapping[tuple[int, str], list[Any]] = field(default_factory=dict)
    is_tainted: bool = False
    processes: Turns = field(default_factory=lambda: Turns(lambda: os.cpu_count() or 1))

    async def close(self) -> None:
        """Close the nodes that hold something."""
        while self.instances:
            number, instance = self.instances.popitem()
            try:
                await instance.close()
            except Exception:
                self.log.exception("run %s: node number %d failed to close", self.run_id, number)
