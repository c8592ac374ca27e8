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


def _node(id: int, kind: str, *inputs: tuple[str, int | None], **more: Any) -> dict[str, Any]:
    slots = [{"name": name, "type": "*", "link": link} for name, link in inputs]
    return {"id": id, "type": kind, "title": kind, "pos": [10 * id, 0], "inputs": slots, **more}


def _link(id: int, *ends: int) -> dict[str, Any]:
    return dict(zip(("id", "origin_id", "origin_slot", "target_id", "target_slot"), (id, *ends), strict=True))


_OUT = {"outputs": [{"name": "out", "type": "*"}]}
_WIDGET = {"name": "seed", "type": "INT", "link": None, "widget": {"name": "seed"}}
INNER = {
    **{"id": "of-one", "name": "Twice", "inputs": [{"name": "a"}, {"name": "seed"}, {"name": "b"}]},
    "nodes": [
        _node(1, "First", ("a", 1), ("free", 9), **_OUT),
        _node(2, "Second", ("x", 2), ("seed", 3), **_OUT, widgets_values=[7]),
    ],
    "links": [
        *(_link(1, -10, 0, 1, 0), _link(2, 1, 0, 2, 0), _link(3, -10, 1, 2, 1), _link(4, 2, 0, -20, 0)),
        *(_link(5, -10, 2, -20, 1), _link(9, -10, 8, 1, 1)),
    ],
}
INNER["nodes"][1]["inputs"][1]["widget"] = {"name": "seed"}
OUTER = {
    **{"id": "of-two", "name": "Nested"},
    "nodes": [_node(1, "of-one", ("a", 1), ("seed", None), **_OUT), _node(2, "Third", ("x", 2), **_OUT)],
    "links": [[1, -10, 0, 1, 0, "*"], [2, 1, 0, 2, 0, "*"], [3, 2, 0, -20, 0, "*"]],
}
SELF = {"id": "of-self", "name": "Ouroboros", "nodes": [_node(1, "of-self"), _node(2, "Tail")], "links": []}


async def test_subgraphs_of_comfyui_come_as_the_nodes_that_are_in_them(imports: Imports) -> None:
    two = [{"name": "out", "type": "*"}, {"name": "same", "type": "*"}]
    one = _node(5, "of-one", ("a", 1), title="One", outputs=two, widgets_values=[42], pos=[500, 300])
    one["inputs"] += [_WIDGET, {"name": "b", "type": "*", "link": 2}]
    nodes = [
        *(_node(3, "Source", **_OUT), one, _node(6, "of-two", ("a", 3), title="Two", mode=4, **_OUT)),
        *(_node(7, "Sink", ("x", 4), ("y", 5)), _node(8, "of-self"), _node(9, "of-nobody")),
    ]
    links = [
        _link(1, 3, 0, 5, 0),
        _link(2, 3, 0, 5, 2),
        _link(3, 5, 0, 6, 0),
        _link(4, 6, 0, 7, 0),
        _link(5, 5, 1, 7, 1),
    ]
    graph = {"nodes": nodes, "links": links, "definitions": {"subgraphs": [INNER, OUTER, SELF]}}
    result = await imports.take("nested.json", graph)
    document = imports.workflow("nested")
    names = {node["id"]: node.get("displayName", node["type"].partition(":")[2]) for node in document["nodes"]}
    assert sorted(names.values()) == sorted(
        [*("Source", "Sink", "First", "First", "Second", "Second", "Third", "Tail", "of-self", "of-nobody")]
    )
    found = sorted((names[edge["source"]], names[edge["target"]]) for edge in document["edges"])
    assert found == sorted(
        [
            *(("Source", "First"), ("First", "Second"), ("Second", "First"), ("First", "Second"), ("Second", "Third")),
            *(("Third", "Sink"), ("Source", "Sink")),
        ]
    )
    seeds = [(node["inputValues"], node.get("bypassed")) for node in document["nodes"] if names[node["id"]] == "Second"]
    assert sorted(seeds, key=str) == [({"seed": 42}, None), ({"seed": 7}, True)]
    assert [frame["text"] for frame in document["comments"]][:2] == ["of-self", "Two"]
    assert result.without_effect == ["of-self is a subgraph that holds itself: it stands as one node"]


async def test_subgraphs_that_swell_are_refused(imports: Imports) -> None:
    def doubling(level: int) -> dict[str, Any]:
        return {"id": f"l{level}", "nodes": [_node(n, f"l{level + 1}") for n in (1, 2)], "links": []}

    wide = {"id": "wide", "nodes": [_node(1, "A", **_OUT), _node(2, "B")], "links": []}
    wide["links"] = [_link(n, 1, 0, 2, n) for n in range(1, 9000)]
    rows = [
        ([_node(1, "l0")], [doubling(level) for level in range(40)], "nodes with those in its subgraphs"),
        ([_node(n, "wide") for n in range(9)], [wide], "links with those in its subgraphs"),
    ]
    await refused(
        [
            (
                imports.take("a.json", {"nodes": nodes, "links": [], "definitions": {"subgraphs": known}}),
                InvalidInput,
                said,
            )
            for nodes, known, said in rows
        ]
    )


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
