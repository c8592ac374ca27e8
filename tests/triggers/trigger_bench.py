"""A host with triggers, whose workflows write what they were given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helpers.tavern_project import Tavern
from helpers.waiting import until
from helpers.workflow_documents import function

from tavern_host import Host
from tavern_host.contracts.calls import CallContext
from tavern_host.projects import Folders
from tavern_triggers.api.triggers import TRIGGER_MANAGER, Firing, FiringStatus, Trigger, TriggerManager
from tests.agents.agent_bench import AgentBench, agent, agent_bench

FOREVER = 1e7


def prepare(project: Tavern) -> None:
    """Write workflows that note a text: at once, some seconds later, never, or not at all, since they fail."""
    taken = {"text": "STRING"}
    for name, seconds in {"note": 0.0, "slow": 5.0, "long": FOREVER}.items():
        mark = {"type": "told:Mark", "inputValues": {"seconds": seconds}}
        flow = function(name, {"mark": mark}, "in.text > mark.text", "mark.result > out.text", takes=taken, gives=taken)
        project.write(f"workflows/{name}.json", flow)
    broken = {"get": {"type": "core:JsonGet", "inputValues": {"path": "none", "data": {}}}}
    project.write("workflows/broken.json", function("broken", broken, "get.value > out.text", takes={}, gives=taken))
    project.write("agents/keeper.json", agent("keeper"))


class TriggerBench:
    """The host, and what its triggers do."""

    def __init__(self, bench: AgentBench) -> None:
        self.agents, self.host, self.project = bench, bench.host, bench.project
        self.triggers: TriggerManager = bench.host.services.get(TRIGGER_MANAGER)
        self.marks = bench.marks

    async def save(self, id: str, kind: str, config: dict[str, Any], **more: Any) -> Trigger:
        """Write a trigger that notes its id."""
        about = {"name": id, "kind": kind, "config": config, "inputs": {"text": id}}
        about |= {} if "agent" in more else {"workflow": "note"}
        trigger = Trigger.model_validate({**about, **more})
        await self.triggers.save(id, trigger)
        return trigger

    async def on(self, id: str, kind: str, config: dict[str, Any], call: CallContext | None = None, **more: Any) -> str:
        """Write a trigger, and switch it on; return its secret."""
        await self.save(id, kind, config, **more)
        return (await self.triggers.enable(id, call=call)).secret

    async def firings(self, id: str, *statuses: FiringStatus) -> list[Firing]:
        """Return the firings of a trigger, the oldest first."""
        found = (await self.triggers.history(id, limit=1000))[::-1]
        return [one for one in found if not statuses or one.status in statuses]

    async def until_fired(self, id: str, count: int = 1, *statuses: FiringStatus) -> list[Firing]:
        """Return the firings of a trigger once so many have ended, or have these statuses."""

        async def find() -> list[Firing]:
            found = await self.firings(id, *statuses)
            ended = found if statuses else [one for one in found if one.status.is_final]
            return ended if len(ended) >= count else []

        found: list[Firing] = await until(find, f"{count} firings of {id}")
        return found


@asynccontextmanager
async def trigger_bench(folder: Path, **options: Any) -> AsyncIterator[TriggerBench]:
    """Give a bench on a project that is served."""
    folders = Folders(folder / "config", folder / "state", folder / "data")
    async with agent_bench(folder, prepare, **{"serving": True, "folders": folders, **options}) as bench:
        yield TriggerBench(bench)


Look = Callable[[], Awaitable[Any]]


async def provider(host: Host) -> Any:
    """Return the provider of the service of triggers."""
    await host.services.get(TRIGGER_MANAGER).history(limit=1)  # makes it
    return host._manager.active["tavern-triggers"].providers[0].instance
