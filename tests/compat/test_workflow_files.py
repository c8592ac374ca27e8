"""The platform's own workflow documents load, check, run and are written back as they were."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, Host
from tavern_host.contracts.executions import RunRequest

DEFAULT = "DefaultWorkflow.json"
SUMMARIZE = "workflow__DesignDocs_architecture_workflow-as-tool-design.md__L62.json"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(tmp_path / "project") as opened:
        yield opened


def platform_file(spec_dir: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((spec_dir / "data" / "comfytavern" / name).read_text(encoding="utf-8"))
    return document


def put(host: Host, spec_dir: Path, name: str, workflow_id: str) -> Path:
    """Copy a document of the platform into the project."""
    host.project.folder("workflows").mkdir(exist_ok=True)
    path = host.project.folder("workflows") / f"{workflow_id}.json"
    path.write_bytes((spec_dir / "data" / "comfytavern" / name).read_bytes())
    return path


@pytest.mark.parametrize("name", [DEFAULT, SUMMARIZE])
async def test_a_document_of_the_platform_has_no_problems(host: Host, spec_dir: Path, name: str) -> None:
    document = platform_file(spec_dir, name)

    assert await host.services.get(WORKFLOW_MANAGER).check(document) == []


@pytest.mark.parametrize("name", [DEFAULT, SUMMARIZE])
async def test_a_document_of_the_platform_is_written_back_as_it_was(host: Host, spec_dir: Path, name: str) -> None:
    manager = host.services.get(WORKFLOW_MANAGER)
    path = put(host, spec_dir, name, "theirs")
    loaded = await manager.get("theirs")

    saved = await manager.save("theirs", loaded.workflow, expected_revision=loaded.revision)

    assert json.loads(path.read_text(encoding="utf-8")) == platform_file(spec_dir, name)
    assert saved.revision == loaded.revision


async def test_the_default_workflow_runs(host: Host, spec_dir: Path) -> None:
    put(host, spec_dir, DEFAULT, "theirs")

    run = await host.services.get(EXECUTION_ENGINE).run(
        RunRequest(workflow_id="theirs", inputs={"input_0": {"any": 1}})
    )

    assert run.status == "complete"
    assert run.workflow_name == platform_file(spec_dir, DEFAULT)["name"]
    assert run.nodes["default-group-input"].output == {"input_0": {"any": 1}}
    assert run.outputs == {}


async def test_the_interface_of_the_summary_example_is_read(host: Host, spec_dir: Path) -> None:
    put(host, spec_dir, SUMMARIZE, "summarize_text")

    stored = await host.services.get(WORKFLOW_MANAGER).get("summarize_text")

    text, length = stored.workflow.interface_inputs.values()
    assert (stored.id, text.data_flow_type, text.required) == ("summarize_text", "STRING", True)
    assert (length.required, length.match_categories, length.default) == (False, ("ComboOption",), "中等")
    assert list(stored.workflow.interface_outputs) == ["summary_result"]
