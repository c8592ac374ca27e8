"""Writes plugins that are folders, for tests that need one of a certain kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_plugin(folder: Path, files: Mapping[str, str] | None = None, **manifest: Any) -> Path:
    """Write a plugin named after its folder (`_` becomes `-`); `files` are its other files by path."""
    name = folder.name.replace("_", "-")
    content = {"name": name, "displayName": name, "version": "1.0.0", "apiVersion": ">=0.1,<0.2", **manifest}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.yaml").write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    for path, text in (files or {}).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


INTERCEPTING = {"permissions": {"hooks": ["hook:server:workflow:before-execute"]}}
"""What a plugin asks for that greets in its own way, which needs the operator's grant."""

GREETS_IN_ITS_OWN_WAY = """
from tavern_host import hookimpl


@hookimpl
def tavern_before_execute(request):
    return request.model_copy(update={"inputs": {**request.inputs, "greeting": "Ahoy"}})
"""
