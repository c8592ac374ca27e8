"""The plugins in `contrib/` that people copy: short, and nothing is wrong with them."""

from __future__ import annotations

import tomllib

from helpers.command_line import tavern
from helpers.repetition import Failures

from tests.house import ROOT, code_lines

MOST = 200
"""How many lines of code an example has, without its tests."""
LONGER = {"my-awesome-plugin", "studio-dice", "studio-examples", "tavern-local-llm"}
"""Those that show many things, or are used for more than an example."""


def test_examples_are_short_and_in_order() -> None:
    with Failures() as failures:
        for project in sorted((ROOT / "contrib").glob("*/pyproject.toml")):
            folder = project.parent
            if folder.name in LONGER:
                continue
            with failures.row(folder.name):
                (package,) = tomllib.loads(project.read_text())["project"]["entry-points"][
                    "tavern_host.plugins"
                ].values()
                assert sum(len(code_lines(file)) for file in (folder / package).rglob("*.py")) <= MOST
                assert (folder / "README.md").is_file() and list(folder.glob("tests/**/test_*.py"))
                (checked,) = tavern("plugins", "check", folder, "--json").json()["plugins"]
                assert (checked["problems"], checked["warnings"]) == ([], [])
