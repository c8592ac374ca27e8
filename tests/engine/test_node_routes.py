"""Clients that know node types or tools are not sent them again, and all are told when somebody reloads node types."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from engine_bench import PLUGINS, OpenHost
from helpers.folder_plugins import write_plugin

from tavern_host import Host
from tavern_host.testing.http import served

OVERRIDE = """
from tavern_host import NODE_MANAGER, TOOL_MANAGER, ServiceOverride, hookimpl, service_info
from tavern_engine.api.nodes import NodeManager
from tavern_tools.api.tools import ToolManager


class FewerNodes(ServiceOverride[NodeManager]):
    left_out = 0

    async def list_nodes(self):
        self.left_out += 1
        return (await self.original.list_nodes())[self.left_out :]


class FewerTools(ServiceOverride[ToolManager]):
    left_out = 0

    async def list_tools(self, filter=None):
        self.left_out += 1
        return (await self.original.list_tools(filter))[self.left_out :]


@hookimpl
def tavern_override_services():
    return [service_info(NODE_MANAGER, FewerNodes), service_info(TOOL_MANAGER, FewerTools)]
"""


async def test_node_types_are_sent_once_while_they_stay(open_host: OpenHost) -> None:
    async with open_host() as bench, served(bench.host) as site:
        first = await site.get("/api/nodes")
        tag, body = first.headers["ETag"], await first.read()
        assert (first.status, first.content_type) == (200, "application/json")
        assert len(json.loads(body)) > 1
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await site.get("/api/nodes", headers={"If-None-Match": known})
            assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tag), known
            assert again.headers["Cache-Control"] == "private, no-cache", "a browser keeps it to send the tag"
        for unknown in ('"other"', tag[1:-1], '"', ""):
            again = await site.get("/api/nodes", headers={"If-None-Match": unknown})
            assert (again.status, await again.read()) == (200, body), unknown
        assert (await site.get("/api/projects/default/nodes", headers={"If-None-Match": tag})).status == 304
        head = await site.request("HEAD", "/api/nodes", headers={"If-None-Match": tag})
        assert (head.status, head.headers["ETag"]) == (304, tag)

        await bench.host.disable("acme-nodes")
        fewer = await site.get("/api/nodes", headers={"If-None-Match": tag})
        assert fewer.status == 200
        assert "acme-nodes" not in await fewer.text()
        assert fewer.headers["ETag"] != tag
        await bench.host.enable("acme-nodes")
        back = await site.get("/api/nodes")
        assert (await back.read(), back.headers["ETag"]) == (body, tag)


async def test_reloading_node_types_loads_plugins_and_tells_everybody(tmp_path: Path) -> None:
    project = tmp_path / "project"
    trust = ["acme-nodes", "acme-buttons"]
    async with Host(project, plugins=[PLUGINS / "acme_nodes"], trust=trust) as host, served(host) as site:
        before = await (await site.get("/api/nodes")).json()
        events = host.events.subscribe("NODES_RELOADED")
        expected = {"success": True, "message": "no plugin is new, changed or gone", "count": len(before)}
        same = await site.post("/api/nodes/reload")
        assert (same.status, await same.json()) == (200, expected)
        assert (await anext(events)).payload == expected  # type: ignore[union-attr]

        shutil.copytree(PLUGINS / "acme_buttons", project / "plugins" / "acme-buttons")
        more = await (await site.post("/api/nodes/reload")).json()
        after = await (await site.get("/api/nodes")).json()
        assert more == {"success": True, "message": "acme-buttons is started", "count": len(after)}
        assert {node["namespace"] for node in after if node not in before} == {"acme-buttons"}
        while (await anext(events)).payload != more:  # type: ignore[union-attr]
            continue  # what the plugin itself brought is told before


async def test_an_override_may_change_its_list_at_any_time(tmp_path: Path) -> None:
    asked = {"services": {"override": ["nodeManager", "toolManager"]}}
    folder = write_plugin(tmp_path / "acme-fewer", {"__init__.py": OVERRIDE}, permissions=asked)
    async with Host(tmp_path / "project", plugins=[folder], trust=["acme-fewer"]) as host, served(host) as site:
        for path in ("/api/nodes", "/api/tools"):
            await host.disable("acme-fewer")
            answers = [await site.get(path)]
            await host.enable("acme-fewer")
            answers += [await site.get(path) for _ in range(3)]
            await host.disable("acme-fewer")
            answers.append(await site.get(path))
            whole = await answers[0].json()
            assert [len(whole) - len(await answer.json()) for answer in answers] == [0, 1, 2, 3, 0], path
            tags = [answer.headers["ETag"] for answer in answers]
            assert (len(set(tags)), tags[0]) == (4, tags[-1]), path


async def test_a_tool_file_is_listed_as_soon_as_it_is_there(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        first = await site.get("/api/tools")
        tag = {"If-None-Match": first.headers["ETag"]}
        assert (await site.get("/api/tools", headers=tag)).status == 304
        whole = [tool["id"] for tool in await first.json()]
        some = [tool["id"] for tool in await (await site.get("/api/tools?namespace=agents")).json()]
        assert 0 < len(some) < len(whole) and set(some) < set(whole)
        folder = host.project.root / "tools"
        folder.mkdir(exist_ok=True)
        under_way, method = [], {"type": "service", "service": "plugins", "method": "why"}
        for number in range(20):  # who asks while files are looked at sees what was there when it asked
            tool = {"id": f"greet{number}", "implementation": method}
            (folder / f"{number}.tool.json").write_text(json.dumps(tool), encoding="utf-8")
            under_way.append(asyncio.create_task(site.get("/api/tools", headers=tag)))
            await asyncio.sleep(0)
        answers = [{tool["id"] for tool in await answer.json()} for answer in await asyncio.gather(*under_way)]
        for number, answer in enumerate(answers):
            assert {f"greet{written}" for written in range(number + 1)} <= answer - set(whole)
