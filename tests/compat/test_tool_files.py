"""The platform's own tool files, and the plugins that its documents show with them: listed, and carried out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from example_bench import OpenBench
from platform_documents import block, blocks, plain_json

from tavern_tools.catalog.files import read_file


def published_tools(spec_dir: Path) -> dict[str, str]:
    """Return every whole tool definition in the data files and the documents, by where it stands."""
    found = {path.name: path.read_text("utf-8") for path in (spec_dir / "data" / "comfytavern").glob("tool__*.json")}
    for name in ("000", "003"):
        for one in blocks(spec_dir, name):
            # A template of the format, or one key of a definition, is no definition.
            if re.match(r"\s*\{\s*\"(id|toolId)\"", one.text) and '"toolId": "string"' not in one.text:
                found[one.place] = one.text
    return found


def test_every_published_tool_definition_is_read_without_a_problem(spec_dir: Path, tmp_path: Path) -> None:
    published = published_tools(spec_dir)
    assert sorted(published) == [
        "000 §10.2.2 (1)",
        "000 §16.2 (2)",
        "000 §18.2 (2)",
        "000 §6.3 (1)",
        "003 §2.2.3 (1)",
        "tool__DesignDocs_architecture_tool_implementation_patterns.md__L195.json",
        "tool__DesignDocs_architecture_unified-plugin-and-tool-architecture.md__L266.json",
    ]
    for place, text in published.items():
        path = tmp_path / "a.tool.json"
        path.write_text(text, "utf-8")  # as it stands, comments and all
        definition, problems = read_file(path, None)
        assert (place, problems) == (place, [])
        document = json.loads(plain_json(text))
        assert definition.id == document.get("id", document.get("toolId"))
        assert definition.parameters == document["parameters"]


async def test_the_folder_of_10_2_1_holds_the_tool_of_10_2_2(
    open_bench: OpenBench, spec_dir: Path, tmp_path: Path
) -> None:
    part = yaml.safe_load(block(spec_dir, "000", "10.2.1"))
    assert part == {"tools": {"entry": "./tools"}}
    head = {"name": "my-awesome-plugin", "displayName": "A", "version": "1.0.0"}
    plugin = tmp_path / "my-awesome-plugin"
    (plugin / "tools").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text(yaml.safe_dump({**head, **part}), "utf-8")
    (plugin / "tools" / "my-script-tool.tool.json").write_text(block(spec_dir, "000", "10.2.2"), "utf-8")
    async with open_bench(plugin) as bench:
        tool = await bench.tools.get("my-awesome-plugin:my_script_tool")
    assert (tool.plugin, tool.kind, tool.implementation.command) == (
        "my-awesome-plugin",
        "script",
        "bun run scripts/my-script.ts",
    )
