"""What the levels of one run share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.feed import Feed
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import NodeInstance


@dataclass(slots=True)
class Scope:
    """One run. `call` is the context of what its nodes do, `instances` the nodes with state that are open, by number.

    `loops` are the iterations that loops had finished when the run was interrupted, by the loop's id. `interface`
    says which interface outputs the streams of the top level go out by: by node and output, their keys.
    """

    run_id: str
    call: CallContext
    feed: Feed
    log: logging.Logger
    instances: dict[int, NodeInstance] = field(default_factory=dict)
    loops: Mapping[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    interface: Mapping[tuple[int, str], list[Any]] = field(default_factory=dict)

    async def close(self) -> None:
        """Close the nodes that hold something."""
        while self.instances:
            number, instance = self.instances.popitem()
            try:
                await instance.close()
            except Exception:
                self.log.exception("run %s: node number %d failed to close", self.run_id, number)
