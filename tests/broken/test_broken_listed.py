"""`tavern plugins list` with all broken plugins: it says of each what can be said, and imports none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_corpus import CORPUS
from broken_plugins import Says
from helpers.command_line import Ran, tavern_process
from inn import Inn
from saying import prepare

from tavern_host.contracts.plugins import PluginState


def listed(inn: Inn, imported: Path, *options: str) -> Ran:
    """Run `tavern plugins list --json`; a plugin that is imported leaves a file in a folder."""
    dev = [word for path in inn.dev for word in ("--dev", str(path))]
    arguments: list[str | Path] = ["--project", inn.root, *dev, *options, "plugins", "list", "--json"]
    path = os.pathsep.join([str(inn.site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return tavern_process(*arguments, PYTHONPATH=path, TAVERN_IMPORTED=str(imported))


def unsaid(says: Says, plugins: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what a list of plugins should say of one and does not."""
    found = [p for p in plugins if p["name"] == says.plugin and says.source in p["source"]]
    if len(found) != 1:
        yield f"{says.plugin} is listed {len(found)} times"
        return
    told = [f"{problem['message']} ({problem.get('hint')})" for problem in found[0].get("problems", ())]
    is_refused = says.at == "link" and says.state is not PluginState.STARTED
    expected = says.state if is_refused else PluginState.DISCOVERED
    if found[0]["state"] != expected:
        yield f"{says.plugin} is {found[0]['state']}, expected {expected}: {told}"
    if says.at == "link" and not any(says.reason in text and says.mend in text for text in told):
        yield f"{says.plugin}: {says.reason!r} ({says.mend!r}) is not said in {told}"


async def test_listing_says_what_is_wrong_and_imports_none(inn: Inn, tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    imported.mkdir()
    await (await prepare(inn, CORPUS)).stop()

    ran, strict = listed(inn, imported), listed(inn, imported, "--strict")

    assert (ran.code, strict.code, list(imported.iterdir())) == (0, 1, [])
    everything = [line for row in CORPUS for says in row.says for line in unsaid(says, ran.json())]
    assert not everything, "\n".join(everything)
    not_in_order = strict.error.removeprefix("Error: not in order: ").split(", ")
    assert {s.plugin for row in CORPUS for s in row.says if s.at == "link"} <= set(not_in_order)


CLOSES = "sys.stdout.close()"
RUDE = (
    "print('hello')",
    "import threading; threading.Thread(target=threading.Event().wait).start()",
    "import warnings; warnings.simplefilter('error')",
    "import logging; logging.disable(); logging.shutdown()",
    "import os; os.chdir('/')",
    "sys.stdout = sys.stderr = None",
)


@pytest.mark.parametrize("statements", [RUDE, [CLOSES]], ids=["takes", "closes"])
async def test_no_plugin_takes_output_or_keeps_commands_running(inn: Inn, statements: list[str]) -> None:
    for number, statement in enumerate(statements):
        inn.code(f"rude-{number}", f"import sys\n{statement}\n")
    await (await inn.reviewed()).stop()

    ran = tavern_process(
        "--project", inn.root, "workflow", "run", "toast", "--input", "name=Ada", "--json", cwd=inn.root
    )

    assert (ran.code, ran.json()["outputs"]) == (0, {"said": "HELLO, ADA"})
