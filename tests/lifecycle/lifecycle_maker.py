"""Writes plugins for tests of what comes and goes while a host runs, and the workflows that use them."""

from __future__ import annotations

import asyncio
import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.plugin_files import write, write_distribution, write_whole

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.workflows import Workflow
from tavern_host.server.plugin_routes import call_route

__all__ = ["write"]

HEAD = """import asyncio
from helpers.stage import STAGE
from tavern_host import *
"""
"""How the code of plugins begins."""


def plugin(
    parent: Path, name: str = "acme", files: str | Mapping[str, str] = "", *hooked: str, **manifest: Any
) -> Path:
    """Write a folder plugin, in the place of what was there; see `write_whole`."""
    return write_whole(parent / name.replace("-", "_"), name, files, hooked, **manifest)


def installed(
    site: Path, name: str, files: str | Mapping[str, str] = "", *hooked: str, version: str = "1.0.0", **manifest: Any
) -> Path:
    """Write what `pip install` of a plugin would, in the place of what was there; `site` is on `sys.path`."""
    package = name.replace("-", "_")
    write_distribution(site, name, package, version=version)
    return write_whole(site / package, name, files, hooked, version=version, **manifest)


def nodes(code: str) -> dict[str, str]:
    """Return the files of a plugin whose nodes are in `nodes.py`; it declares `nodes={"entry": "nodes"}`."""
    return {"__init__.py": "", "nodes.py": HEAD + textwrap.dedent(code)}


def chain(*types: str, name: str = "Chain") -> Workflow:
    """Return a workflow that hands its input `text` from node to node, and out; the nodes take `text`, and give
    `result` or, basic ones, `text`."""
    inner = [{"id": f"n{i}", "type": kind} for i, kind in enumerate(types)]
    listed = [{"id": "in", "type": "core:GroupInput"}, *inner, {"id": "out", "type": "core:GroupOutput"}]
    edges = [
        {
            "id": f"e{i}",
            "source": before["id"],
            "sourceHandle": "text" if before["type"].startswith("core:") else "result",
            "target": after["id"],
            "targetHandle": "text",
        }
        for i, (before, after) in enumerate(itertools.pairwise(listed))
    ]
    slot = {"text": {"key": "text", "dataFlowType": "STRING"}}
    return Workflow.model_validate(
        {"name": name, "nodes": listed, "edges": edges, "interfaceInputs": slot, "interfaceOutputs": slot}
    )


async def begin(host: Host, *types: str) -> asyncio.Task[Run]:
    """Begin a run of a chain; it is accepted when this returns."""
    engine = host.services.get(EXECUTION_ENGINE)
    run_id = await engine.submit(RunRequest(workflow=chain(*types), inputs={"text": "made"}))
    return asyncio.create_task(engine.wait(run_id))


async def run(host: Host, *types: str) -> Run:
    """Run a chain to its end."""
    return await (await begin(host, *types))


async def get(host: Host, path: str) -> Any:
    """Return the data that a plugin's route answers with; None where there is no such route."""
    registered, parameters, _ = host.registrations.find("GET", path)
    if registered is None:
        return None
    call = CallContext(principal=Principal(kind="user", id="operator"))
    response = await call_route(
        host, registered, HttpRequest(method="GET", path=path, parameters=parameters, call=call)
    )
    assert isinstance(response, HttpResponse)
    return response.data


def problems(host: Host, name: str = "acme") -> list[str]:
    """Return the problems of a plugin as a person reads them."""
    return [str(problem) for problem in host.plugin(name).problems]


def states(host: Host, *names: str) -> list[str]:
    """Return the states of plugins."""
    return [host.plugin(name).state.value for name in names]
