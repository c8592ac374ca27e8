"""A person at a terminal sees what the assistant would change, and says yes."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.screen import on_screen


def test_a_person_at_a_terminal_is_asked(project: Path) -> None:
    file = project / "workflows" / "greet.json"
    code, screen, _ = on_screen(
        "--project", project, "assist", str(file), "count the letters", typed="y\n", NO_COLOR=""
    )
    assert code == 0
    assert "Make these changes? [y]es, [n]o:" in screen.text
    assert {"31", "32", "33"} <= screen.colours
    assert [node["id"] for node in json.loads(file.read_text())["nodes"]] == ["up", "text-length"]
