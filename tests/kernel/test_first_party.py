"""First-party is the very distribution that the running host was installed by; no other one becomes it by its words."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from plugin_maker import host_with, make_plugin, problems_of

import tavern_host
from tavern_host import Host
from tavern_host.contracts.plugins import PluginState, Problem

RAN = "import os, pathlib; pathlib.Path(os.environ['ACME_RAN']).touch()\n"
HOOK = "hook:server:tool:before-call"


def wheel(
    folder: Path,
    name: str,
    *,
    entry: str = "acme",
    package: str | None = None,
    metadata: str | None = None,
    files: dict[str, str] | None = None,
    claims: tuple[str, ...] = (),
) -> Path:
    """Write a wheel with a plugin that asks for a grant; `claims` are files that its record has and that it has not."""
    info, package = f"{name}-9.0.dist-info", package or entry.replace("-", "_")
    manifest = {"name": entry, "displayName": "Acme", "version": "9.0", "permissions": {"hooks": [HOOK]}}
    content = {
        f"{package}/__init__.py": RAN,
        f"{package}/plugin.yaml": json.dumps(manifest),
        f"{info}/METADATA": metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[tavern_host.plugins]\n{entry} = {package}\n[pydantic]\n{entry} = {package}\n",
        **{f"{info}/{file}": text for file, text in (files or {}).items()},
    }
    rows = io.StringIO()
    csv.writer(rows).writerows([file, "", ""] for file in (*content, *claims, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-9.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**content, f"{info}/RECORD": rows.getvalue()}.items():
            archive.writestr(file, text)
    return path


def unpack(path: Path, site: Path) -> None:
    """Install a wheel as an installer does that checks nothing."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(site)


UPWARDS = os.path.relpath(Path(tavern_host.__file__), "/")
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 9.0\n"
CLAIMS = {
    "its metadata say another name": {"name": "acme_pack", "metadata": METADATA.format("tavern-host")},
    "its metadata have two": {"name": "acme_pack", "metadata": METADATA.format("tavern-host\nName: acme-pack")},
    "it is called alike": {"name": "Tavern_Host"},
    "it has the host's files by their absolute path": {"name": "tavern.host", "claims": (tavern_host.__file__,)},
    "it has the host's files by a way upwards": {"name": "tavern_host", "claims": (f"{'../' * 20}{UPWARDS}",)},
    "it has a package of the host's names": {"name": "TAVERN_HOST", "claims": ("tavern_host/__init__.py",)},
}
"""What a distribution that is not the host's may say of itself."""


def test_no_distribution_claims_to_be_the_hosts(tmp_path: Path) -> None:
    with Failures() as failures:
        for number, (what, row) in enumerate(CLAIMS.items()):
            site = tmp_path / str(number)
            unpack(wheel(tmp_path, **row), site)  # type: ignore[arg-type]
            with failures.row(what), pytest.MonkeyPatch.context() as patch:
                patch.syspath_prepend(site)
                host = Host(tmp_path / "p")
                host.link()
                assert (host.plugin("acme").state, host.plugin("acme").first_party) == (PluginState.INVALID, False)
                engine = host.plugin("tavern-engine")
                assert (engine.state, engine.first_party) == (PluginState.DISCOVERED, True)


def test_packages_belong_to_their_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, editable = tmp_path / "project", tmp_path / "editable"
    origin = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
    unpack(wheel(tmp_path, "written_pack", entry="written", files={"direct_url.json": origin}), editable)
    (project / "src").mkdir(parents=True)
    (editable / "written").rename(project / "src" / "written")
    for name in ("acme_pack", "other_pack"):
        unpack(wheel(tmp_path, name), tmp_path / name)
    zipped = wheel(tmp_path, "zipped_pack", entry="zipped")
    for place in (tmp_path / "acme_pack", tmp_path / "other_pack", editable, project / "src", zipped):
        monkeypatch.syspath_prepend(place)
    host = Host(tmp_path / "p")
    host.link()
    found = {plugin.source: plugin.state for plugin in host.plugins() if not plugin.first_party}
    assert found == {
        "entry-point:other_pack": PluginState.NEEDS_REVIEW,
        "entry-point:acme_pack": PluginState.INVALID,  # its package is the other's
        "entry-point:written_pack": PluginState.NEEDS_REVIEW,
        "entry-point:zipped_pack": PluginState.INVALID,
    }
    assert "cannot be found" in host.plugin("zipped").problems[0].message, "it is not unpacked"


def test_only_first_party_plugins_have_commands_beside_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack(wheel(tmp_path, "acme"), tmp_path / "site")
    (tmp_path / "site" / "acme" / "host_commands.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert tavern("init", "--empty", tmp_path / "inn").code == 0
    assert "acme" in [plugin.name for plugin in Host(tmp_path / "inn").link()]
    without = [word for name in ("operations", "packages") for word in ("--no-plugin", f"tavern-{name}")]
    with Failures() as failures:
        for words in (
            ["settings", "list"],
            ["audit", "verify"],
            ["why", "plugin:acme"],
            ["plugins", "disable", "acme"],
        ):
            with failures.row(" ".join(words)):
                ran = tavern("--project", tmp_path / "inn", *without, *words)
                assert (ran.code, ran.err) == (0, "")


DAMAGED = {
    "tavern_worlds.descriptors": {"tavern-worlds"},
    "tavern_llm.api.hooks": {"tavern-llm"},
}
"""Modules that cannot be imported, each with the plugins that this costs the host."""


async def test_a_damaged_plugin_costs_no_other(tmp_path: Path) -> None:
    with Failures() as failures:
        for module, lost in DAMAGED.items():
            with failures.row(module), pytest.MonkeyPatch.context() as patch:
                patch.setitem(sys.modules, module, None)
                async with Host(tmp_path / module) as host:
                    assert {one.name for one in host.plugins() if one.state is not PluginState.STARTED} == lost


async def test_what_a_refused_plugin_publishes_can_be_asked_for(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "", permissions={"hooks": [HOOK]})
    async with host_with(tmp_path / "p", folder) as host:
        host._manager.records["tavern-tools"].refuse(PluginState.INVALID, Problem(message="a file is missing"))
        await host.reload("acme")
        assert problems_of(host) == []
