"""`tavern serve`: what plugins know of being served."""

from __future__ import annotations

import asyncio
import shutil
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


async def test_a_server_tells_plugins_and_what_it_refuses(tmp_path: Path) -> None:
    """Plugins know a served host from that of one command; decisions are refused while the audit log is not written."""
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    hooks = {"hooks": ["hook:server:host:startup"]}
    write_plugin(project / "plugins" / "acme", {"__init__.py": CODE}, permissions=hooks)
    write_plugin(project / "plugins" / "looks")
    for words in (["plugins", "grant", "acme"], ["nodes", "list"]):
        assert (await asyncio.to_thread(tavern, "--project", project, *words)).code == 0
    log = project / ".tavern" / "audit"
    shutil.rmtree(log)
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
        code, err = await server.stop()

    assert (code, f"the audit log {log / 'audit.sqlite3'} cannot be written" in err) == (0, True)
    assert "is written again" in err
    actions = [entry.action for entry in tail(log / "audit.sqlite3", 10)]
    assert actions.index("plugin.disabled.refused") < actions.index("plugin.disabled")
    assert (project / ".tavern" / "plugins" / "acme" / "starts").read_text().split() == ["False", "True"]
