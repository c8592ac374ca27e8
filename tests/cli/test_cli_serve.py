"""`tavern serve`: what plugins know of being served."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.audit_logs import tail
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


async def test_a_host_says_that_decisions_are_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", project)).code == 0
    folder = project / "plugins" / "looks"
    write_plugin(folder)
    log = project / ".tavern" / "audit"
    log.parent.mkdir(exist_ok=True)
    log.write_text("a file where the folder should be")
    async with serving(project) as server:
        state = f"{server.base}/api/plugins/looks/state"
        async with server.session.put(state, json={"enabled": False}) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "service_unavailable")
        assert (await server.get("/api/system_stats"))["auditLogProblem"]
        assert (await server.get("/api/plugins/looks"))["state"] == "started"
        log.unlink()
        async with server.session.put(state, json={"enabled": False}) as answer:
            assert answer.status == 200
        assert (await server.get("/api/system_stats"))["auditLogProblem"] is None
        _, err = await server.stop()

    assert f"the audit log {log / 'audit.sqlite3'} cannot be written" in err
    assert "is written again" in err
    actions = [entry.action for entry in tail(log / "audit.sqlite3", 10)]
    assert actions.index("plugin.disabled.refused") < actions.index("plugin.disabled")
