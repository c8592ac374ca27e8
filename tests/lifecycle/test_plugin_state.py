"""What the parts of a plugin share: one state for each load, made when it is asked for and closed with the plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.stage import STAGE
from lifecycle_maker import HEAD, get, plugin, run

from tavern_host import Host

CODE = f"""{HEAD}
class State:
    def __init__(self, context):
        self.count = 0
    async def close(self):
        STAGE.log.append(f"closed at {{self.count}}")

async def count(given, context):
    context.own(State).count += 1
    return HttpResponse(data=context.own(State).count)

@hookimpl
async def tavern_startup(context):
    await count(None, context)

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/NAME/count", handler=f"{{__name__}}:count")]
"""
NODES = """
from . import *
@node()
async def count_on(text: str, context: NodeContext) -> str:
    return str((await count(text, context.plugin)).data)
"""


def counting(project: Path, name: str = "acme", more: str = "") -> None:
    """Write a plugin whose hook, route and node count together."""
    files = {"__init__.py": CODE.replace("NAME", name) + more, "nodes.py": NODES}
    plugin(project / "plugins", name, files, "tavern_startup", "tavern_register_routes", nodes={"entry": "nodes"})


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_all_parts_of_a_plugin_share_one_state(project: Path, placement: Any) -> None:
    counting(project)
    counting(project, "other")
    async with Host(project, trust=["acme", "other"], placement=placement) as host:
        assert (await run(host, "acme:CountOn")).outputs == {"text": "2"}, "the start counted, too"
        assert await get(host, "/api/x/acme/count") == 3
        assert await get(host, "/api/x/other/count") == 2, "a plugin has a state of its own"


async def test_a_state_is_closed_with_its_load_and_the_next_load_has_a_new_one(project: Path) -> None:
    counting(project)
    async with Host(project, trust=["acme"]) as host:
        counting(project, more="# changed")
        await host.reload()
        await host._manager.lifecycle.drained()
        assert (STAGE.log, await get(host, "/api/x/acme/count")) == (["closed at 1"], 2)
    assert STAGE.log == ["closed at 1", "closed at 2"]


TWICE = """
class Late:
    made = 0

    def __init__(self, context):
        Late.made += 1
        if Late.made == 1:
            context.own(Late)  # as on another thread at this moment

    def close(self):
        STAGE.log.append("closed")

@hookimpl
async def tavern_startup(context):
    assert context.own(Late) is context.own(Late)
"""


async def test_states_that_were_made_at_the_same_time_are_all_closed(project: Path) -> None:
    plugin(project / "plugins", "acme", {"__init__.py": HEAD + TWICE}, "tavern_startup")
    async with Host(project, trust=["acme"], strict=True):
        pass
    assert STAGE.log == ["closed", "closed"]
