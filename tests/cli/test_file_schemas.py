"""`tavern schema`: what the schemas let through, and that they say what the host reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_devtools.scaffold import scaffold
from tavern_devtools.schemas import SCHEMAS, schema_of
from tavern_host.plugins.operator_file import OperatorFile
from tavern_host.projects import ProjectFile
from tavern_tools.api.toolschema import PROPERTIES
from tavern_tools.catalog.definitions import _KNOWN

ROOT = Path(__file__).parents[2]
FILES = (
    ("plugin", "plugins/*/plugin.yaml"),
    ("plugin", "contrib/**/plugin.yaml"),
    ("tool", "plugins/**/*.tool.json"),
    ("tool", "contrib/**/*.tool.json"),
    ("workflow", "plugins/**/workflows/**/*.json"),
    ("agent", "plugins/**/agents/*.json"),
    ("panel", "plugins/**/panels/*.json"),
)


def test_the_schemas_let_all_files_of_this_project_through() -> None:
    checkers = {name: jsonschema.Draft7Validator(schema_of(name)) for name in SCHEMAS}
    seen: set[str] = set()
    with Failures() as failures:
        for name, pattern in FILES:
            for path in sorted(ROOT.glob(pattern)):
                inner = {*path.relative_to(ROOT).parts}
                if {"node_modules", ".venv"} & inner or (name != "workflow" and "workflows" in inner):
                    continue
                with failures.row(path.relative_to(ROOT)):
                    seen.add(name)
                    text = path.read_text("utf-8")
                    document = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
                    assert [error.message for error in checkers[name].iter_errors(document)] == []
    assert seen >= {"plugin", "tool", "workflow", "agent"}


def test_the_schemas_refuse_what_the_host_does() -> None:
    rows: list[tuple[str, Any, bool]] = [
        ("plugin", {"name": "a", "displayName": "A", "version": "1.0", "x-mine": 1}, True),
        ("plugin", {"name": "a", "displayName": "A", "version": "1.0", "nods": {}}, False),
        ("plugin", {"name": "a"}, False),
        ("tool", {"toolId": "a", "handler": {"type": "node", "nodeType": "core:UpperCase"}}, True),
        ("tool", {"id": "a", "implementation": {"type": "node"}}, False),
        ("tool", {"id": "a", "implementation": {"type": "servce"}}, False),
        ("tool", {"implementation": {"type": "script"}}, False),
        ("project", {"name": "Inn", "settings": {}}, True),
        ("project", {"trust": ["a"]}, False),
        ("host", {"trust": ["a"], "audit": {}}, True),
        ("host", {"trusts": []}, False),
        ("workflow", {"nodes": [{"id": "a", "type": "core:UpperCase"}], "own": 1}, True),
        ("workflow", {"nodes": [{"id": "a"}]}, False),
    ]
    with Failures() as failures:
        for name, document, fits in rows:
            with failures.row(f"{name}: {document}"):
                assert jsonschema.Draft7Validator(schema_of(name)).is_valid(document) is fits


def test_what_is_kept_of_the_hosts_models_is_what_they_are() -> None:
    """After a change: write `model_json_schema()` into the file."""
    kept = ROOT / "plugins" / "tavern_devtools" / "file_schemas"
    for name, model in (("project", ProjectFile), ("host", OperatorFile)):
        assert json.loads(kept.joinpath(f"{name}.json").read_text("utf-8")) == model.model_json_schema()
    assert PROPERTIES.keys() == {*_KNOWN}


def test_all_are_written_as_stores_of_schemas_take_them(tmp_path: Path) -> None:
    assert tavern("schema", "--output", tmp_path / "out").code == 0
    catalog = json.loads((tmp_path / "out" / "catalog.json").read_text())
    assert {one["url"] for one in catalog["schemas"]} == {f"{name}.schema.json" for name in SCHEMAS}
    for one in catalog["schemas"]:
        schema = json.loads((tmp_path / "out" / one["url"]).read_text())
        jsonschema.Draft7Validator.check_schema(schema)
        assert (schema["$schema"], "$defs" in str(schema), bool(one["fileMatch"])) == (
            "http://json-schema.org/draft-07/schema#",
            False,
            True,
        )
    assert tavern("schema", "tool", "--json").json() == schema_of("tool")
    assert "did you mean tool?" in tavern("schema", "tol").error


def test_a_new_plugin_names_its_schemas() -> None:
    files = scaffold("acme-inn").files
    assert files["acme_inn/plugin.yaml"].startswith("# yaml-language-server: $schema=../.schemas/plugin.schema.json\n")
    assert json.loads(files["acme_inn/tools/shout.tool.json"])["$schema"] == "../../.schemas/tool.schema.json"
    assert json.loads(files[".schemas/plugin.schema.json"]) == schema_of("plugin")
