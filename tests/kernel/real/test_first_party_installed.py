"""Installed packages do not become first-party by their words, nor by where they lie on the path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from helpers.command_line import tavern_process
from test_first_party import unpack, wheel

from tavern_host.contracts.plugins import PluginInfo, PluginState


def plugins_with(site: Path, tmp_path: Path) -> list[PluginInfo]:
    """Return the plugins of `tavern plugins list` where `site` is earlier on the path; nothing of it is imported."""
    ran = tmp_path / "ran"
    done = tavern_process(*("plugins", "list", "--json"), cwd=tmp_path, PYTHONPATH=str(site), ACME_RAN=str(ran))
    assert not ran.exists(), done.err
    return [PluginInfo.model_validate(plugin) for plugin in done.json()]


def of_name(plugins: list[PluginInfo], name: str) -> list[PluginInfo]:
    """Return the plugins of a name."""
    return [plugin for plugin in plugins if plugin.name == name]


def test_a_wheels_description_makes_it_not_first_party(tmp_path: Path) -> None:
    wheels = []
    for number, header in enumerate(("name: acme_", "NAME:acme_", "Name:\tacme_")):
        metadata = f"Metadata-Version: 2.1\n{header}{number}\nVersion: 9.0\n\nName: tavern-host\n"
        wheels.append(wheel(tmp_path, f"acme_{number}", entry=f"acme-{number}", metadata=metadata))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target"]
    subprocess.run([*pip, tmp_path / "site", *wheels], check=True, timeout=120)
    plugins = plugins_with(tmp_path / "site", tmp_path)
    for number in range(len(wheels)):
        (plugin,) = of_name(plugins, f"acme-{number}")
        assert (plugin.source, plugin.first_party) == (f"entry-point:acme_{number}", False)
        assert [permission.granted for permission in plugin.permissions] == [False]


EDITABLE = json.dumps({"url": "file:///", "dir_info": {"editable": True}})


def test_two_hosts_leave_nothing_first_party(tmp_path: Path) -> None:
    site = tmp_path / "site"
    unpack(wheel(tmp_path, "tavern_host", files={"direct_url.json": EDITABLE}), site)
    plugins = plugins_with(site, tmp_path)
    assert {(plugin.state, plugin.first_party) for plugin in plugins} == {(PluginState.INVALID, False)}
    (engine,) = of_name(plugins, "tavern-engine")
    assert f"the running host was installed by {site}/tavern_host-9.0.dist-info and " in engine.problems[0].message
    assert engine.problems[0].hint == "uninstall all but one"
    plain = tavern_process("plugins", "list", "--check", cwd=tmp_path, PYTHONPATH=str(site))
    assert plain.code == 0, "the list works where first-party plugins cannot be used"
    (line,) = [line for line in plain.out.splitlines() if "tavern-engine " in line]
    assert " invalid " in line


def test_packages_earlier_on_the_path_are_refused(tmp_path: Path) -> None:
    unpack(wheel(tmp_path, "acme_pack", entry="tavern-demo", package="tavern_demo"), tmp_path / "site")
    plugins = plugins_with(tmp_path / "site", tmp_path)
    found = {plugin.source: plugin for plugin in of_name(plugins, "tavern-demo")}
    assert {(plugin.state, plugin.first_party) for plugin in found.values()} == {(PluginState.INVALID, False)}
    (problem,) = found["entry-point:tavern-host"].problems
    assert problem.message == f"{tmp_path}/site/tavern_demo is not what was installed with tavern-host"
