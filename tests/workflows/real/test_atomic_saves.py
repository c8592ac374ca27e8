"""A save leaves the old content or the new one, whenever the process is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.repetition import repetitions

from tavern_host.storage.files import TEMPORARY

SAVER = """
import asyncio, sys
from pathlib import Path
from tavern_host import WORKFLOW_MANAGER, Host

def workflow(version):
    nodes = [{"id": f"n{i}", "type": "core:Text", "inputValues": {"text": version * 200}} for i in range(500)]
    return {"name": version, "nodes": nodes}

async def main():
    async with Host(Path(sys.argv[1])) as host:
        manager = host.services.get(WORKFLOW_MANAGER)
        versions = [await manager.parse(workflow(version)) for version in "ab"]
        await manager.save("w", versions[1])
        print("saving", flush=True)
        while True:
            for version in versions:
                await manager.save("w", version)

asyncio.run(main())
"""


def test_a_killed_save_leaves_a_whole_workflow(tmp_path: Path) -> None:
    project = tmp_path / "project"
    found = set()

    for _ in range(repetitions(2, 12)):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(project)], stdout=subprocess.PIPE, env=os.environ)
        assert process.stdout.readline() == b"saving\n"
        time.sleep(random.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        document = json.loads((project / "workflows" / "w.json").read_bytes())
        assert len(document["nodes"]) == 500
        assert {node["inputValues"]["text"] for node in document["nodes"]} == {document["name"] * 200}
        found.add(document["name"])

    assert found <= {"a", "b"}
    left = [path for path in (project / "workflows").iterdir() if path.name != "w.json"]
    assert all(path.name.startswith(TEMPORARY) for path in left)
