"""A node of a folder plugin that runs in a process of its own, within a run."""

from __future__ import annotations

import os
from pathlib import Path

from engine_bench import OpenHost, output, state, workflow

APART = {"type": "acme-buttons:Apart", "inputValues": {"value": 3}}


async def test_a_folder_plugins_code_is_found_in_the_process(open_host: OpenHost) -> None:
    async with open_host("acme_buttons") as bench:
        run = await bench.run(workflow({"n": APART}))
        value = output(run, "n")
    assert value["shown"] == "<3>"
    assert value["module"].startswith("tavern_plugins.acme_buttons")
    assert value["pid"] != os.getpid()


async def test_a_failure_in_the_process_is_the_nodes(open_host: OpenHost, tmp_path: Path) -> None:
    async with open_host("acme_buttons") as bench:
        run = await bench.run(
            workflow({"odd": {"type": "Odd", "configValues": {"kind": "model"}}, "n": "acme-buttons:Apart"}, "odd > n")
        )
        shown = state(run, "n")
    assert "the input 'value' holds a value of the type Amount, which has no codec" in shown.error.message
