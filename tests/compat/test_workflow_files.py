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


def put(host: Host, spec_dir: Path, name: str, workflow_id: str) -> tuple[Path, dict[str, Any]]:
    """Copy a document of the platform into the project; return its place and what it holds."""
    host.project.folder("workflows").mkdir(exist_ok=True)
    path = host.project.folder("workflows") / f"{workflow_id}.json"
    path.write_bytes((spec_dir / "data" / "comfytavern" / name).read_bytes())
    return path, json.loads(path.read_text(encoding="utf-8"))


async def test_documents_of_the_platform_are_sound_and_kept(host: Host, spec_dir: Path) -> None:
    manager = host.services.get(WORKFLOW_MANAGER)
    for name, workflow_id in ((DEFAULT, "theirs"), (SUMMARIZE, "summarize_text")):
        path, document = put(host, spec_dir, name, workflow_id)
        unfed = "output_0" if name == DEFAULT else "summary_result"
        found = [(one.path, one.severity) for one in await manager.check(document)]
        assert found == [(f"$.interfaceOutputs.{unfed}", "warning")]
        loaded = await manager.get(workflow_id)
        saved = await manager.save(workflow_id, loaded.workflow, expected_revision=loaded.revision)
        assert json.loads(path.read_text(encoding="utf-8")) == document
        assert saved.revision == loaded.revision
    text, length = saved.workflow.interface_inputs.values()
    assert (saved.id, text.data_flow_type, text.required) == ("summarize_text", "STRING", True)
    assert (length.required, length.match_categories, length.default) == (False, ("ComboOption",), "中等")
    assert list(saved.workflow.interface_outputs) == ["summary_result"]


async def test_the_default_workflow_runs(host: Host, spec_dir: Path) -> None:
    _, document = put(host, spec_dir, DEFAULT, "theirs")
    request = RunRequest(workflow_id="theirs", inputs={"input_0": {"any": 1}})
    run = await host.services.get(EXECUTION_ENGINE).run(request)
    assert (run.status, run.workflow_name, run.outputs) == ("complete", document["name"], {})
    assert run.nodes["default-group-input"].output == {"input_0": {"any": 1}}
