"""Short ways to write workflows, run them on a host with the test plugins, and read what came of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import until
from helpers.workflow_documents import workflow_document

from tavern_engine import EngineState
from tavern_engine.api.executions import ExecutionEngine
from tavern_engine.api.nodes import NodeManager
from tavern_host import EXECUTION_ENGINE, NODE_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import DeadlineExceeded, InvalidInput
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import NodeState, Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WorkflowManager

PLUGINS = Path(__file__).parent / "plugins"


def plugin_folders(*names: str) -> list[Path]:
    """Return the folders of test plugins, of which some are for real tests alone."""
    return [folder if (folder := PLUGINS / name).is_dir() else PLUGINS.parent / "real/plugins" / name for name in names]


def edges_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield the edges of texts such as `a > b > c, c.sum > d.a`: an end without a slot is that of the slot `value`."""
    for chain in (chain for text in texts for chain in text.split(", ")):
        ends = [end if "." in end else f"{end}.value" for end in chain.split(" > ")]
        yield from (f"{one} > {other}" for one, other in pairwise(ends))


def workflow(nodes: dict[str, Any], *edges: str, **more: Any) -> Workflow:
    """Return a workflow of nodes by id (a type, or a node) and edges as `edges_in` reads them.

    A type without a namespace is one of the test plugin `acme-nodes`.
    """
    made = workflow_document(nodes, *edges_in(edges), **more)
    for node in made["nodes"]:
        if ":" not in node["type"]:
            node["type"] = f"acme-nodes:{node['type']}"
    return Workflow.model_validate(made)


def give(value: Any, type: str = "WILDCARD") -> dict[str, Any]:
    """Return a node that gives a value."""
    return {"type": "Give", "configValues": {"type": type, "value": value}}


def take(type: str) -> dict[str, Any]:
    """Return a node that takes a value of a type, and gives it."""
    return {"type": "Take", "configValues": {"type": type}}


def slot(type: str = "WILDCARD", **more: Any) -> dict[str, Any]:
    """Return a slot of an interface."""
    return {"dataFlowType": type, **more}


def group(reference: str, **values: Any) -> dict[str, Any]:
    """Return a group that stands for a stored workflow."""
    config = {"referencedWorkflowId": reference}
    return {"type": "core:NodeGroup", "configValues": config, "inputValues": values}


LASTING = ("leases", "journal", "tavern-engine: follow node types")
"""How the names of tasks begin that the first run of a host starts, and that last as long as the host."""


async def no_tasks_are_left(before: set[asyncio.Task[Any]]) -> None:
    await until(lambda: all(t.get_name().startswith(LASTING) for t in asyncio.all_tasks() - before), "no task is left")


class Bench:
    """A running host and its engine."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.engine: ExecutionEngine = host.services.get(EXECUTION_ENGINE)
        self.nodes: NodeManager = host.services.get(NODE_MANAGER)
        self.workflows: WorkflowManager = host.services.get(WORKFLOW_MANAGER)
        self.state = host._manager.active["tavern-engine"].context.own(EngineState)
        self.since = self.begun = host.events.last_seq

    def forget(self) -> None:
        """Empty the cache of outputs."""
        if (engine := self.state.engine) is not None:  # from its first use on
            engine.cache.clear()

    async def run(self, document: Workflow, call: CallContext | None = None, **inputs: Any) -> Run:
        self.begun = self.host.events.last_seq
        return await self.engine.run(RunRequest(workflow=document, inputs=inputs), call=call)

    async def start(self, document: Workflow, call: CallContext | None = None, **inputs: Any) -> str:
        self.begun = self.host.events.last_seq
        return await self.engine.submit(RunRequest(workflow=document, inputs=inputs), call=call)

    async def late(
        self, act: Callable[[CallContext], Awaitable[Any]], has_begun: Callable[[Any], bool] = lambda _: True
    ) -> Any:
        """Do what ends at the deadline of a call; return what comes of it, with as much time as it needs to begin."""
        for seconds in (0.2, 1, 5):
            with contextlib.suppress(DeadlineExceeded):
                found = await act(self.host.call().child(timeout=seconds))
                if has_begun(found):
                    return found
        return await act(self.host.call().child(timeout=25))

    async def refusal(self, document: Workflow, **inputs: Any) -> dict[str, str]:
        """Return by path why a run is refused."""
        with pytest.raises(InvalidInput) as caught:
            await self.start(document, **inputs)
        problems: Any = caught.value.info.details["problems"]
        return {problem["path"]: problem["message"] for problem in problems}

    async def interrupted(self, run_id: str) -> Run:
        """Interrupt a run and return it as it ended."""
        await self.engine.interrupt(run_id)
        return await self.engine.wait(run_id)

    async def events(self, run: Run, *types: str) -> list[Event]:
        """Return the events of the run that was begun last and has finished, of these types."""
        found = []
        async for event in self.host.events.subscribe(*types, "EXECUTION_STATUS_UPDATE", since=self.begun):
            assert isinstance(event, Event), "events were lost"
            if event.payload.get("promptId", run.id) == run.id:
                if event.type in types:
                    found.append(event)
                if event.type == "EXECUTION_STATUS_UPDATE" and RunStatus(str(event.payload["status"])).is_final:
                    break
        return found

    async def until(self, type: str, **payload: Any) -> None:
        """Wait until an event with this payload has been published, now or since this bench is there."""
        async for event in self.host.events.subscribe(type, since=self.since):
            if payload.items() <= getattr(event, "payload", {}).items():
                return


def state(run: Run, node_id: str) -> NodeState:
    return run.nodes[node_id]


def output(run: Run, node_id: str, key: str = "value") -> Any:
    """Return an output of a node that completed."""
    shown = run.nodes[node_id]
    assert shown.status == "complete", f"{node_id}: {shown}"
    return shown.output[key]


OpenHost = Callable[..., AbstractAsyncContextManager[Bench]]
