"""The state that all levels of one run share."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.api.clusters import NodeCluster
from tavern_engine.run.event_batch import EventBatch
from tavern_engine.run.loop_log import LoopState
from tavern_engine.run.priority_semaphore import PrioritySemaphore
from tavern_engine.run.run_blobs import RunBlobs
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import NodeInstance

RUNNING_REMOTELY: dict[str, Any] = {}
"""Stands for the outputs of a node that was sent to the cluster; it is this one object."""


@dataclass(frozen=True)
class Cluster:
    """Where nodes may be sent; `takes_all` that are pure, or those alone that the workflow places there."""

    service: NodeCluster
    takes_all: bool


@dataclass(slots=True)
class Scope:
    """One run. `call` is the context of what its nodes do, `instances` the open nodes with state, by number.

    `loops` are the states of loops to resume from, by the loop's id. `interface` maps the streams of the top level, by
    node and output, to the keys of the interface outputs that publish them. `is_tainted`: in this loop a default stands
    for what a node should have given. `processes` limits how many nodes run in a process of their own at a time.
    `cluster` is where nodes may be sent.
    """

    run_id: str
    call: CallContext
    events: EventBatch
    log: logging.Logger
    blobs: RunBlobs
    instances: dict[int, NodeInstance] = field(default_factory=dict)
    loops: Mapping[str, LoopState] = field(default_factory=dict)
    interface: Mapping[tuple[int, str], list[Any]] = field(default_factory=dict)
    is_tainted: bool = False
    processes: PrioritySemaphore = field(default_factory=lambda: PrioritySemaphore(lambda: os.cpu_count() or 1))

    cluster: Cluster | None = None

    async def close(self) -> None:
        """Close the nodes that hold something."""
        while self.instances:
            number, instance = self.instances.popitem()
            try:
                await instance.close()
            except Exception:
                self.log.exception("run %s: node number %d failed to close", self.run_id, number)
