"""`tavern plugins new` in the folder of a plugin: parts are added, and nothing that is there is written over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.command_line import tavern

from tavern_devtools.parts import PARTS


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def added(tmp_path: Path, *options: str) -> Any:
    ran = tavern("plugins", "new", "acme-parts", *options, "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    return ran.json()


def checked(folder: Path) -> Any:
    (report,) = tavern("plugins", "check", folder, "--json").json()["plugins"]
    return report


def test_parts_that_are_added_make_the_plugin_that_has_them_all(tmp_path: Path) -> None:
    added(tmp_path, "--node")
    for part in [part for part in PARTS if part != "node"]:
        assert added(tmp_path, f"--{part}")["byHand"] == {}
    added(tmp_path, "--ui", "vanilla")
    one_by_one = tmp_path / "one-by-one"
    (tmp_path / "acme-parts").rename(one_by_one)
    added(tmp_path, *(f"--{part}" for part in PARTS), "--ui", "vanilla")
    at_once = tmp_path / "acme-parts"
    own = ("README.md", "acme_parts/plugin.yaml")  # what it says of all that it has
    one, other = ({p: text for p, text in contents(root).items() if p not in own} for root in (one_by_one, at_once))
    assert {p for p in one.keys() | other.keys() if one.get(p) != other.get(p)} == set()
    first, second = checked(one_by_one), checked(at_once)
    assert (first["problems"], first["warnings"], first["provides"]) == ([], [], second["provides"])
    assert first["permissions"] == second["permissions"]
    assert first["provides"]["agent"] == ["acme-parts"] and first["provides"]["workflow"] == ["acme-parts/deliberation"]


def test_what_somebody_has_written_stays(tmp_path: Path) -> None:
    added(tmp_path, "--hook", "--node")
    root = tmp_path / "acme-parts"
    before = contents(root)
    ran = tavern("plugins", "new", "acme-parts", "--node", "--folder", root)
    assert ran.code == 2 and "acme_parts/nodes/reverse.py" in ran.err and "nothing was written" in ran.err
    assert contents(root) == before

    (root / "acme_parts" / "nodes" / "reverse.py").write_text("# mine\n")
    with (root / "acme_parts" / "__init__.py").open("a") as module:
        module.write("\n# mine\n")
    manifest = root / "acme_parts" / "plugin.yaml"
    manifest.write_text("# mine\n" + manifest.read_text())
    before = contents(root)
    done = added(root, "--tool", "--service", "--folder", ".")
    assert {*done["byHand"]} == {"acme_parts/plugin.yaml", "acme_parts/__init__.py"}
    assert "tools:" in done["byHand"]["acme_parts/plugin.yaml"] and "services:register" in str(done["byHand"])
    after = contents(root)
    assert {path: after[path] for path in before} == before
    assert {*after} - {*before} == {*done["files"]} and done["changed"] == []

    (root / "pyproject.toml").write_text("# mine\n")
    assert "playwright" in added(tmp_path, "--ui", "vue")["byHand"]["pyproject.toml"]

    done = added(tmp_path, "--knowledge")
    assert done["byHand"] == {} and manifest.read_text().startswith("# mine\nname: acme-parts\n")
    assert manifest.read_text().endswith("\n\nknowledge:\n  entry: ./knowledge\n")
