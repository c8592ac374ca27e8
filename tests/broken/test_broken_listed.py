"""`tavern plugins list` with all broken plugins: it says of each what can be said, and imports none."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_corpus import CORPUS
from helpers.command_line import Ran, tavern
from inn import Inn
from saying import prepare

from tavern_host.contracts.plugins import PluginState


@pytest.fixture
async def full(inn: Inn) -> Inn:
    """Return an inn with the whole corpus in it."""
    host = await prepare(inn, CORPUS)
    await host.stop()
    return inn


def listed(inn: Inn, imported: Path, *options: str) -> Ran:
    """Run `tavern plugins list --json`; imported plugins leave a file in a folder."""
    imported.mkdir(exist_ok=True)
    dev = [word for path in inn.dev for word in ("--dev", str(path))]
    environment = {"PYTHONPATH": str(inn.site), "TAVERN_IMPORTED": str(imported)}
    return tavern("--project", inn.root, *dev, *options, "plugins", "list", "--json", **environment)


def test_all_are_listed_with_what_is_wrong_and_none_is_imported(full: Inn, tmp_path: Path) -> None:
    ran = listed(full, tmp_path / "imported")

    assert (ran.code, list((tmp_path / "imported").iterdir())) == (0, [])
    unsaid = []
    for says in (says for row in CORPUS for says in row.says):
        found = [p for p in ran.json() if p["name"] == says.plugin and says.source in p["source"]]
        if len(found) != 1:
            unsaid.append(f"{says.plugin} is listed {len(found)} times")
            continue
        (plugin,) = found
        told = [f"{problem['message']} ({problem.get('hint')})" for problem in plugin.get("problems", ())]
        if says.at != "link":
            expected: str = PluginState.DISCOVERED
        else:
            expected = says.state if says.state is not PluginState.STARTED else PluginState.DISCOVERED
            if not any(says.reason in text and says.mend in text for text in told):
                unsaid.append(f"{says.plugin}: {says.reason!r} ({says.mend!r}) is not said in {told}")
        if plugin["state"] != expected:
            unsaid.append(f"{says.plugin} is {plugin['state']}, expected {expected}: {told}")
    assert not unsaid, "\n".join(unsaid)


def test_a_strict_list_of_them_is_a_failure(full: Inn, tmp_path: Path) -> None:
    ran = listed(full, tmp_path / "imported", "--strict")

    assert (ran.code, list((tmp_path / "imported").iterdir())) == (1, [])
    assert ran.error.startswith("Error: not in order: ")
    named = ran.error.removeprefix("Error: not in order: ").split(", ")
    for says in (says for row in CORPUS for says in row.says if says.at == "link"):
        assert says.plugin in named


@pytest.mark.parametrize(
    "statement",
    [
        "print('hello')",
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close()",
        "import threading; threading.Thread(target=threading.Event().wait).start()",
        "import warnings; warnings.simplefilter('error')",
        "import logging; logging.disable(); logging.shutdown()",
        "import os; os.chdir('/')",
    ],
)
async def test_no_plugin_takes_the_output_of_a_command_or_keeps_it_from_ending(inn: Inn, statement: str) -> None:
    inn.code("rude", f"import sys\n{statement}\n")
    await (await inn.reviewed()).stop()

    ran = tavern("--project", inn.root, "workflow", "run", "toast", "--input", "name=Ada", "--json", cwd=inn.root)

    assert (ran.code, ran.json()["outputs"]) == (0, {"said": "HELLO, ADA"})
