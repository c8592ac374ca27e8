"""The option `workflows` of the pytest marker `tavern`: documents by id, written into the project of a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tavern_host.contracts.workflows import Workflow


def write_workflows(project: Path, workflows: Mapping[str, Mapping[str, Any] | Workflow]) -> None:
    """Write workflows into the project in this folder, before its host is made."""
    for workflow_id, workflow in workflows.items():
        document = workflow.model_dump(mode="json", exclude_unset=True) if isinstance(workflow, Workflow) else workflow
        path = project / "workflows" / f"{workflow_id}.json"
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
