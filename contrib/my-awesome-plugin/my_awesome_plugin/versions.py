"""Files with earlier versions of workflows, `ID@NUMBER.json` in one folder. Blocking: call it from a thread."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.workflows import Workflow


class Versions:
    """Earlier versions in a folder, which is made when the first one is kept.

    A workflow's next version has the number after its highest one, so that a name keeps its meaning.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, workflow_id: str, workflow: Workflow, *, most: int) -> None:
        """Keep `workflow` as the newest earlier version; forget the oldest beyond `most`. Raises `OSError`."""
        numbers = sorted(number for owner, number, _ in self._files() if owner == workflow_id)
        if most > 0:
            numbers.append(max(numbers, default=0) + 1)
            self._write(self._path(workflow_id, numbers[-1]), workflow)
        for number in numbers[: max(0, len(numbers) - most)]:
            self._path(workflow_id, number).unlink(missing_ok=True)

    def read(self, version_id: str) -> dict[str, Any] | None:
        """Return the document of the version `ID@NUMBER`, or None where there is none. Raises `InvalidInput`."""
        found = next((path for _, _, path in self._files() if path.stem == version_id), None)
        return None if found is None else read_document_file(found)

    def counts(self) -> Counter[str]:
        """Return how many earlier versions there are, by workflow."""
        return Counter(owner for owner, _, _ in self._files())

    def _files(self) -> list[tuple[str, int, Path]]:
        found = ((*path.stem.rpartition("@"), path) for path in self._folder.glob("*@*.json"))
        return [(owner, int(number), path) for owner, _, number, path in found if number.isdecimal()]

    def _path(self, workflow_id: str, number: int) -> Path:
        return self._folder / f"{workflow_id}@{number}.json"

    def _write(self, path: Path, workflow: Workflow) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        document = workflow.model_dump(mode="json", exclude_unset=True)
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")
        unfinished.replace(path)
