"""What was written survives the end of the process, at any moment."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
from pathlib import Path

from helpers.forking import PYTHON
from helpers.repetition import repetitions

from tavern_host import Folders, Host
from tavern_host.contracts.knowledge import KNOWLEDGE_BASE

ROOT = Path(__file__).parents[2]


def killed(root: Path, state: Path, after: int) -> list[str]:
    """Return the entries that a host acknowledged before it was killed, at least so many."""
    folders = {f"TAVERN_{name.upper()}_DIR": str(state / name) for name in ("config", "state", "data")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "plugins")])
    process = subprocess.Popen(
        [*PYTHON, "-m", "tests.knowledge.survivor", str(root)],
        cwd=ROOT,
        env={**os.environ, **folders, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = [line.strip() for line in itertools.islice(process.stdout, after)]
    process.kill()
    said += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.wait()
    return said


async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    for round in range(repetitions(2, 20)):
        root, state = tmp_path / f"inn{round}", tmp_path / f"state{round}"
        said = await asyncio.to_thread(killed, root, state, 10 + 7 * round)
        ids = [entry["id"] for entry in json.loads((root / "knowledge" / "diary.json").read_text())["entries"]]
        assert ids[: len(said)] == said
        assert len(ids) <= len(said) + 1
        async with Host(root, folders=Folders(state / "config", state / "state", state / "data")) as host:
            kb = host.services.get(KNOWLEDGE_BASE)
            assert (await kb.list_entries("diary")).total == len(ids)
            assert len(await kb.search("harbour", limit=1000)) == len(ids)
