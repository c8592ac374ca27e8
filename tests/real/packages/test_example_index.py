"""The plugins in `contrib/` that people copy: their wheels are in order, and are installed by name from their index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.command_line import tavern

from tests.house import ROOT
from tests.real.packages.test_packages import KEY, plugins


def test_examples_are_installed_by_name(project: Path, tmp_path: Path) -> None:
    script = ROOT / "contrib" / "build_index.py"
    built = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "dist")], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    for wheel in sorted((tmp_path / "dist").glob("*.whl")):
        checked = tavern("plugins", "check", wheel)
        assert (checked.code, "warning" in checked.out) == (0, False), checked.out + checked.err

    index = {KEY.rpartition(".")[2]: str(tmp_path / "dist" / "index.json")}
    assert "searches the web" in plugins(project, "search", "web", **index).out
    found = plugins(project, "install", "web-search", "--grant", **index)
    assert (found.code, "web-search 0.1.0 is installed" in found.out) == (0, True), found.out + found.err
    refused = tavern("--project", project, "tools", "call", "web:search", "--arg", "query=knots")
    assert (refused.code, "set web-search.address" in refused.out + refused.err) == (1, True)
