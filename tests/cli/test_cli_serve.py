"""`tavern serve`: what plugins know of being served."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.serve_process import serving

CODE = """
from tavern_host import hookimpl


@hookimpl
async def tavern_startup(context):
    with open(context.data_dir / "starts", "a") as file:
        print(context.serving, file=file)
"""


async def test_a_plugin_knows_a_served_host_from_that_of_one_command(tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", project)).code == 0
    folder = project / "plugins" / "acme"
    write_plugin(folder, {"__init__.py": CODE}, permissions={"hooks": ["hook:server:host:startup"]})
    assert (await asyncio.to_thread(tavern, "--project", project, "plugins", "grant", "acme")).code == 0

    assert (await asyncio.to_thread(tavern, "--project", project, "nodes", "list")).code == 0
    async with serving(project) as server:
        code, _ = await server.stop()

    assert code == 0
    assert (project / ".tavern" / "plugins" / "acme" / "starts").read_text().split() == ["False", "True"]
