"""What is wrong with a plugin's code is told with the same file, line and column in whichever process it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.plugin_files import write_whole

from tavern_host import Host
from tavern_host.contracts.plugins import PluginState, Problem

FINE = "from tavern_host import *\n"
NODES = {"nodes": {"entry": "nodes.py"}}
ROUTES = "@hookimpl\ndef tavern_register_routes():\n    "
CONTRACTS = {"publishes": {"services": [{"name": "contracts.s", "interface": "contracts:S"}]}}
BROKEN: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "syntax": ({"__init__.py": f"{FINE}\nx = = 1\n"}, {}),
    "syntax-deeper": ({"__init__.py": f"{FINE}from .inner import x\n", "inner.py": "def f(:\n    pass\n"}, {}),
    "import": ({"__init__.py": f"{FINE}\n\nraise ValueError('boom')\n"}, {}),
    "import-deeper": (
        {"__init__.py": f"{FINE}from .inner import x\n", "inner.py": "def f(): 1 / 0\n\nf()\n"},
        {},
    ),
    "missing": ({"__init__.py": f"{FINE}import nothing_like_it\n"}, {}),
    "node": ({"__init__.py": FINE, "nodes.py": f"{FINE}@node()\ndef f(a: set) -> str: ...\n"}, NODES),
    "hook": ({"__init__.py": f"{FINE}{ROUTES}raise KeyError('x')\n"}, {}),
    "hook-syntax": ({"__init__.py": f"{FINE}{ROUTES}from .inner import x\n", "inner.py": "x = (\n"}, {}),
    "contracts": ({"__init__.py": FINE, "contracts.py": "x = 1\nraise OSError('no')\n"}, CONTRACTS),
}


async def told(root: Path, placement: str) -> dict[str, list[Problem]]:
    """Return what is wrong with each of these plugins."""
    for name, (files, manifest) in BROKEN.items():
        hooked = ["tavern_register_routes"] if name.startswith("hook") else []
        write_whole(root / "plugins" / name, name, files, hooked, **manifest)
    async with Host(root, trust=list(BROKEN), placement=placement) as host:  # type: ignore[arg-type]
        assert {host.plugin(name).state for name in BROKEN} == {PluginState.FAILED}
        return {name: host.plugin(name).problems for name in BROKEN}


async def test_errors_have_the_same_place_in_every_placement(tmp_path: Path) -> None:
    here, apart = await told(tmp_path, "in-process"), await told(tmp_path, "process")
    for name in BROKEN:
        assert apart[name] == here[name], name
        assert here[name][0].file is not None, name
    assert [here["syntax"][0].line, here["syntax"][0].column] == [3, 5]
