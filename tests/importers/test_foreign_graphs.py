"""Graphs of other programs: what of them is there afterwards, and that none runs with a placeholder."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from helpers.repetition import Failures, refused

from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, InvalidInput
from tavern_host.contracts.executions import RunRequest
from tests.importers.imports_bench import Imports


def nodes_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node.get("displayName", node["type"].partition(":")[2]): node for node in document["nodes"]}


def ends(document: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    names = {node["id"]: node.get("displayName", node["type"].partition(":")[2]) for node in document["nodes"]}
    return {(names[e["source"]], e["sourceHandle"], names[e["target"]], e["targetHandle"]) for e in document["edges"]}


async def test_a_graph_of_comfyui_is_there_with_values_places_and_notes(imports: Imports) -> None:
    result = await imports.take("comfy_ui.json")
    assert (result.kind, result.things[0].page) == ("comfyui", "/workflows/comfy_ui")
    assert result.without_effect == ["SaveImage (9) was muted with what follows it; it is bypassed"]
    document = imports.workflow("comfy_ui")
    nodes = nodes_of(document)
    assert nodes.keys() == {
        *("CheckpointLoaderSimple", "正向提示词", "CLIPTextEncode", "EmptyLatentImage", "KSampler", "VAEDecode"),
        "SaveImage",
    }
    assert nodes["KSampler"]["inputValues"]["sampler_name"] == "euler"
    assert nodes["KSampler"]["inputValues"]["control_after_generate"] == "randomize"
    assert nodes["CLIPTextEncode"]["inputValues"] == {"text": "blurry, low quality"}  # of the primitive
    assert [name for name, node in nodes.items() if node.get("bypassed")] == ["CLIPTextEncode", "SaveImage"]
    assert nodes["KSampler"]["position"] == {"x": 863.0, "y": 186.0}
    assert ("CheckpointLoaderSimple", "CLIP", "正向提示词", "clip") in ends(document)  # through the reroute
    assert len(document["edges"]) == 9
    assert [note["text"] for note in document["comments"]] == ["Load a model first.\n先加载模型", "Prompts"]
    again = await asyncio.gather(*(imports.take("comfy_ui.json") for _ in range(3)))
    assert sorted(one.things[0].id for one in again) == ["comfy_ui-2", "comfy_ui-3", "comfy_ui-4"]


async def test_the_other_programs_come_as_theirs_are(imports: Imports) -> None:
    rows = [
        ("comfy_api.json", "comfyui", 5, 6, "KSampler"),
        ("n8n.json", "n8n", 5, 5, "获取 RSS"),
        ("langflow.json", "langflow", 2, 1, "OpenAI"),
        ("dify.yml", "dify", 3, 2, "LLM"),
    ]
    with Failures() as failures:
        for name, kind, count, links, one in rows:
            with failures.row(name):
                result = await imports.take(name)
                document = imports.workflow(result.things[0].id)
                assert (result.kind, len(document["nodes"]), len(document["edges"])) == (kind, count, links)
                assert one in nodes_of(document)
                assert all("position" in node for node in document["nodes"])
                assert "sk-secret" not in json.dumps(document)
    dify = nodes_of(imports.workflow("长文翻译"))
    assert dify["LLM"]["position"]["x"] > dify["迭代"]["position"]["x"]  # it lies in that one
    assert nodes_of(imports.workflow("每日摘要"))["AI Agent"]["bypassed"] is True


async def test_what_has_a_placeholder_is_not_run_and_says_why(imports: Imports) -> None:
    result = await imports.take("n8n.json")
    assert any("these nodes wait for one another" in step for step in result.next_steps)
    await imports.take("comfy_api.json")
    engine, call = imports.host.services.get(EXECUTION_ENGINE), imports.host.call()
    with pytest.raises(InvalidInput) as error:
        await engine.run(RunRequest(workflow_id="comfy_api"), call=call)
    assert "it stands for 'KSampler' of ComfyUI, which has no counterpart here" in error.value.message
    found = await imports.host.services.get(WORKFLOW_MANAGER).check(imports.workflow("comfy_api"))
    assert len([one for one in found if "it stands for" in one.message]) == 5


async def test_nodes_that_the_project_names_take_the_place_of_others(imports: Imports) -> None:
    imports.host.project.root.joinpath("import-map.yaml").write_text(
        "comfyui:Join: {type: core:TextMerge, inputs: {parts: text_inputs}, outputs: {output_0: merged_text},"
        " values: {separator: '-'}}\n"
    )
    graph = {
        "1": {"class_type": "Fixed", "inputs": {}},
        "2": {"class_type": "Join", "inputs": {"parts": ["1", 0], "odd": 3}},
        "3": {"class_type": "UpperCase", "inputs": {"text": "loud"}},
        "4": {"class_type": "UpperCase", "inputs": {"words": ["2", 0]}},
    }
    result = await imports.take("graph.json", graph)
    document = imports.workflow("graph")
    types = {node["id"]: node["type"] for node in document["nodes"]}
    assert types == {"1": "comfyui:Fixed", "2": "core:TextMerge", "3": "core:UpperCase", "4": "comfyui:UpperCase"}
    joined = next(node for node in document["nodes"] if node["id"] == "2")
    assert (joined["inputValues"], joined["inputConnectionOrders"]) == ({"separator": "-"}, {"text_inputs": ["e1"]})
    assert result.without_effect == ["the value odd of core:TextMerge: 1"]
    imports.host.project.root.joinpath("import-map.yaml").write_text("comfyui:Join: {tipe: x}\n")
    await refused([(imports.take("graph.json", graph), InvalidInput, "import-map.yaml: comfyui:Join")])


async def test_graphs_that_nobody_drew_by_hand(imports: Imports) -> None:
    one: dict[str, Any] = {"id": 1, "type": "A", "inputs": [{"name": "i", "link": 1}], "outputs": [{"name": "o"}]}
    reroutes = [
        {"id": n, "type": "Reroute", "inputs": [{"name": "", "link": link}], "outputs": [{"name": ""}]}
        for n, link in ((2, 2), (3, 3))
    ]
    circle = {"nodes": [one, *reroutes], "links": [[1, 2, 0, 1, 0], [2, 3, 0, 2, 0], [3, 2, 0, 3, 0]]}
    same = {"nodes": [{**one, "inputs": []}, {**one, "inputs": []}], "links": []}
    keys = {"__proto__": {"class_type": "A", "inputs": {"__proto__": 1, "constructor": 2, "x": 3}}}
    rows: list[tuple[str, Any, int, str]] = [
        ("reroutes in a circle", circle, 1, "the link to i of A leads nowhere"),
        ("two nodes of one id", same, 1, ""),
        ("keys of prototypes", keys, 1, ""),
        ("nodes that are none", {"nodes": [1, None, {"id": [], "type": {}}], "links": [[1, 2], {}]}, 1, ""),
        ("names of nodes that are one", _twins(), 2, "there are two nodes 'a'"),
        (
            "edges to nowhere",
            {"data": {"nodes": [{"id": "a", "data": 3}], "edges": [{"source": 1}]}},
            1,
            "an edge leads",
        ),
    ]
    with Failures() as failures:
        for name, graph, count, said in rows:
            with failures.row(name):
                result = await imports.take("odd.json", graph)
                document = imports.workflow(result.things[0].id)
                assert len(document["nodes"]) == count
                assert len({node["id"] for node in document["nodes"]} - {"__proto__"}) == count
                assert said in " ".join(result.without_effect)
    assert imports.workflow("odd-3")["nodes"][0]["inputValues"] == {"__proto___": 1, "constructor_": 2, "x": 3}
    many = {"nodes": [{"id": n} for n in range(5_001)], "links": []}
    chat = b"app: {mode: chat, name: x}\nkind: app\nmodel_config: {}\n"
    await refused(
        [
            (imports.take("many.json", many), InvalidInput, "at most 5,000 are imported"),
            (imports.take("none.json", {"nodes": [], "links": []}), InvalidInput, "without nodes"),
            (imports.take("chat.yml", chat), InvalidInput, "a Dify app of the mode 'chat' has no graph"),
        ]
    )


def _twins() -> dict[str, Any]:
    node = {"name": "a", "type": "t", "position": [0, 0], "parameters": {}}
    return {"nodes": [node, dict(node)], "connections": {"a": {"main": [[{"node": "a", "type": "main", "index": 0}]]}}}
