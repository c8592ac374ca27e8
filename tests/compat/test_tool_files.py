"""The platform's own tool files and the schema that its documents give for a workflow tool."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tavern_host import Host
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_tools.files import read_file

MANIFEST = """\
name: bilibili-fetcher
displayName: Bilibili 内容获取器
version: 0.1.0
tools:
  entry: ./tools
"""


def document(spec_dir: Path, name: str) -> str:
    [path] = (spec_dir / "spec").glob(f"{name}_*.txt")
    return path.read_text("utf-8")


def json_blocks(text: str) -> list[str]:
    return re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)


def without_comments(text: str) -> str:
    """Return JSON without the `//` comments with which the documents explain it."""
    return re.sub(r"\s//.*$", "", text, flags=re.MULTILINE)


def published_tools(spec_dir: Path) -> dict[str, str]:
    """Return every whole tool definition in the data files and the documents, by where it stands."""
    found = {path.name: path.read_text("utf-8") for path in (spec_dir / "data" / "comfytavern").glob("tool__*.json")}
    for name in ("000", "003"):
        for number, block in enumerate(json_blocks(document(spec_dir, name))):
            # A template of the format, or one key of a definition, is no definition.
            if re.match(r"\s*\{\s*\"(id|toolId)\"", block) and '"toolId": "string"' not in block:
                found[f"spec/{name}, block {number}"] = block
    return found


def test_every_published_tool_definition_is_read_without_a_problem(spec_dir: Path, tmp_path: Path) -> None:
    published = published_tools(spec_dir)
    assert len(published) >= 7
    for place, text in published.items():
        path = tmp_path / "a.tool.json"
        path.write_text(without_comments(text), "utf-8")
        definition, problems = read_file(path, None)
        assert (place, problems) == (place, [])
        assert definition is not None
        given = json.loads(without_comments(text))
        assert definition.id == given.get("id", given.get("toolId"))
        assert definition.parameters == given["parameters"]


@pytest.fixture(params=["data file", "spec/000 §16"])
def bilibili(request: pytest.FixtureRequest, spec_dir: Path, tmp_path: Path) -> Path:
    """Return the plugin of the case study as a folder, with either copy of its tool file."""
    folder = tmp_path / "bilibili-fetcher"
    (folder / "tools").mkdir(parents=True)
    (folder / "plugin.yaml").write_text(MANIFEST, "utf-8")
    target = folder / "tools" / "bilibili.tool.json"
    if request.param == "data file":
        [source] = (spec_dir / "data" / "comfytavern").glob("tool__*_L195.json")
        shutil.copyfile(source, target)
    else:
        case_study = document(spec_dir, "000").partition("## 16.")[2]
        target.write_text(json_blocks(case_study)[0], "utf-8")
    return folder


async def test_the_tool_of_the_case_study_is_listed_and_says_what_it_needs(bilibili: Path, tmp_path: Path) -> None:
    async with Host(tmp_path / "project", plugins=[bilibili], trust=["bilibili-fetcher"]) as host:
        tools = host.services.get(TOOL_MANAGER)
        tool = await tools.get("BilibiliFetch:getSubtitle")
        assert (tool.plugin, tool.kind, tool.implementation.timeout) == ("bilibili-fetcher", "script", 30000)
        assert tool.display_name == "获取 Bilibili 视频字幕"
        assert tool.parameters["required"] == ["url"]
        assert tool.config_schema[0]["key"] == "bilibiliCookie"
        assert tool.unavailable == "needs service scriptExecution"
        request = ToolCallRequest(tool_id=tool.id, arguments={"url": "BV1"})
        result = await tools.call(request)
        assert result.error is not None
        assert result.error.type == ToolErrorType.SERVICE_UNAVAILABLE
        assert result.error.message == f"{tool.id} cannot be called now: needs service scriptExecution"


async def test_the_service_that_spec_003_names_is_known_by_its_name_here(spec_dir: Path, tmp_path: Path) -> None:
    [text] = [t for t in published_tools(spec_dir).values() if "core:execute-python-script" in t]
    (tmp_path / "project" / "tools").mkdir(parents=True)
    file = tmp_path / "project" / "tools" / "python.tool.json"
    file.write_text(without_comments(text), "utf-8")
    async with Host(tmp_path / "project") as host:
        tool = await host.services.get(TOOL_MANAGER).get("core:execute-python-script")
        assert tool.unavailable == "needs service scriptExecution"


async def test_the_schema_of_summarize_text_equals_the_documents_json(spec_dir: Path, tmp_path: Path) -> None:
    [source] = (spec_dir / "data" / "comfytavern").glob("workflow__*_L62.json")
    interface = json.loads(source.read_text("utf-8"))
    workflows = tmp_path / "project" / "workflows"
    workflows.mkdir(parents=True)
    workflow: dict[str, Any] = {"name": "summarize", "nodes": [], "edges": [], **interface}
    (workflows / "summarize_text.json").write_text(json.dumps(workflow), "utf-8")
    [expected] = [b for b in json_blocks(document(spec_dir, "002")) if '"name": "workflow:summarize_text"' in b]
    async with Host(tmp_path / "project") as host:
        [schema] = await host.services.get(TOOL_MANAGER).schemas(["workflow:summarize_text"])
    assert schema == json.loads(expected)
    assert json.dumps(schema) == json.dumps(json.loads(expected))  # in this order, too
