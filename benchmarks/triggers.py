"""Schedules that are due at one moment: when the last of them has started, and for how long others wait meanwhile."""

from __future__ import annotations

import asyncio
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, longest_hold, measured
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import Host, clock
from tavern_host.contracts.executions import RunRequest
from tavern_host.projects import Folders
from tavern_triggers.api.triggers import TRIGGER_MANAGER, Firing

COUNT = 1000
WITHIN, LIMIT = 60.0, 50.0
"""Seconds in which all have started, and milliseconds for which nobody else waits."""
_ENABLED = 60.0
"""Seconds in which all are switched on."""
_WORKFLOW = {
    "name": "text",
    "nodes": [{"id": "n0", "type": "core:Text", "position": {"x": 0, "y": 0}, "inputValues": {"text": "hello"}}],
    "edges": [],
}


def triggers() -> list[Result]:
    """Return when the last of 1,000 triggers has started, and the longest hold, beside as many runs that are only
    submitted."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_triggers(Path(place)))


async def _triggers(place: Path) -> list[Result]:
    project, due = place / "project", clock.now() + timedelta(seconds=_ENABLED)
    for name in ("workflows", "triggers"):
        (project / name).mkdir(parents=True)
    (project / "workflows" / "text.json").write_text(json.dumps(_WORKFLOW))
    about = {"name": "t", "kind": "schedule", "config": {"at": due.isoformat()}, "workflow": "text"}
    for number in range(COUNT):
        (project / "triggers" / f"t{number}.json").write_text(json.dumps(about))
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    async with Host(project, folders=folders, serving=True) as host:
        service, engine = host.services.get(TRIGGER_MANAGER), host.services.get(EXECUTION_ENGINE)

        async def submitted() -> None:
            request = RunRequest(workflow_id="text")
            for begin in range(0, COUNT, 100):
                runs = await asyncio.gather(*(engine.submit(request) for _ in range(begin, begin + 100)))
                await asyncio.gather(*(engine.wait(run) for run in runs))

        async def fired() -> list[Firing]:
            while True:
                await asyncio.sleep(0.5)
                found = await service.history(limit=COUNT)
                if len(found) == COUNT and all(one.status.is_final for one in found):
                    return found

        await submitted()
        began = clock.seconds()
        floor = await longest_hold(submitted)
        spent = clock.seconds() - began
        for number in range(COUNT):
            await service.enable(f"t{number}")
        left = (due - clock.now()).total_seconds()
        assert left > 0, "enabling took too long"
        await asyncio.sleep(left - 0.5)
        hold = await longest_hold(fired)
        found = await service.history(limit=COUNT)
    starts = [(one.started_at - due).total_seconds() for one in found if one.started_at is not None]
    assert len(starts) == COUNT
    options: dict[str, Any] = {"limited": "value"}
    return [
        measured(
            f"the last of {COUNT:,} triggers that are due at one moment has started",
            [(max(starts), spent)],
            "as many runs, submitted and ended",
            WITHIN,
            unit="s",
            scale=1,
            **options,
        ),
        measured("… longest hold meanwhile", [(hold, floor)], "of these runs", LIMIT, unit="ms", scale=1e3, **options),
    ]
