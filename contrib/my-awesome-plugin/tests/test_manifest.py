"""What the plugin says of itself agrees with what it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tavern_host import Host
from tavern_host.testing import MakeHost

PLUGIN = Path(__file__).parents[1] / "my_awesome_plugin"

pytestmark = pytest.mark.tavern(plugins=[PLUGIN])


def test_package_and_manifest_have_one_version(make_host: MakeHost) -> None:
    project = tomllib.loads((PLUGIN.parent / "pyproject.toml").read_text())["project"]
    info = next(p for p in make_host().link() if p.name == "my-awesome-plugin")
    assert info.version == project["version"]


async def test_it_starts_with_all_that_it_declares(host: Host) -> None:
    info = host.plugin("my-awesome-plugin")
    assert info.problems == []
    assert info.contributions["node"] == ["my-awesome-plugin:SplitItems"]
    assert info.contributions["override"] == ["workflowManager"]
    assert info.contributions["ui outlet"] == ["node:header:right"]
    assert info.contributions["ui wrap"] == ["ui:BaseNode"]


async def test_the_front_end_has_what_the_plugin_declares_on_the_page(host: Host) -> None:
    files = host.frontend_files("my-awesome-plugin")
    frontend = host.plugin("my-awesome-plugin").frontend
    assert files is not None
    assert frontend is not None
    assert frontend.entry_url == f"/plugins/my-awesome-plugin/{files.version}index.js"
    assert frontend.style_urls == [f"/plugins/my-awesome-plugin/{files.version}style.css"]
    assert sorted((one.export, one.kind) for one in frontend.declarations) == [
        ("OwnNodeBadge", "outlet"),
        ("frameOwnNodes", "wrap"),
    ]
    exported = re.findall(r"^export const (\w+)", (files.folder / "index.js").read_text(), re.MULTILINE)
    declared = re.findall(r'export="(\w+)"', (PLUGIN / "__init__.py").read_text())
    assert sorted(exported) == sorted(declared) == ["OwnNodeBadge", "frameOwnNodes"]
    assert (files.folder / "style.css").is_file()


def test_the_code_imports_only_what_plugin_authors_may_import() -> None:
    statement = re.compile(r"^\s*(?:from|import) (tavern\w*(?:\.\w+)*)", re.MULTILINE)
    modules = {name for path in PLUGIN.rglob("*.py") for name in statement.findall(path.read_text())}
    assert "tavern_host" in modules
    others = (name for name in modules if name != "tavern_host" and not name.startswith("tavern_host.contracts."))
    assert all(re.fullmatch(r"tavern_\w+\.api\.\w+", name) for name in others)
