"""What a person sees who runs a workflow on a terminal, while it runs and after it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from helpers.screen import on_screen
from helpers.workflow_documents import workflow_document

STORY = '''"""A plugin with a node that tells a story, word by word, and one that waits, both for a file."""
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from tavern_host import Slot, node


@node()
async def tell(go: str) -> AsyncIterator[Annotated[str, Slot(key="story")]]:
    for number in range(20):
        yield f"word{number} "
        await wait(go)


@node()
async def wait(go: str) -> None:
    while not Path(go).exists():
        await asyncio.sleep(0.02)
'''


def wait(seconds: float, name: str | None = None) -> dict[str, Any]:
    """Return a node that waits."""
    return {"type": "core:Wait", "displayName": name, "inputValues": {"seconds": seconds}}


def write(folder: Path, nodes: dict[str, dict[str, Any]], *edges: str, **more: Any) -> Path:
    """Write a workflow of nodes by id and edges `source.slot > target.slot`."""
    path = folder / "w.json"
    path.write_text(json.dumps(workflow_document(nodes, *edges, **{"name": "Work", **more})))
    return path


@pytest.fixture
def story(tmp_path: Path) -> tuple[list[str], Path]:
    """Return options that load a plugin with a streaming node, and a workflow with it at its output."""
    plugin = tmp_path / "acme_story"
    (plugin / "nodes").mkdir(parents=True)
    (plugin / "nodes" / "__init__.py").write_text(STORY)
    (plugin / "__init__.py").write_text("")
    (plugin / "plugin.yaml").write_text("name: acme-story\ndisplayName: Story\nversion: 1.0.0\nnodes: {entry: nodes}\n")
    path = write(
        tmp_path,
        {
            "t": {"type": "acme-story:Tell", "inputValues": {"go": str(tmp_path / "go")}},
            "out": {"type": "core:GroupOutput"},
        },
        "t.story > out.story",
        interfaceOutputs={"story": {"dataFlowType": "STRING", "isStream": True, "displayName": "Story"}},
    )
    return ["--dev", str(plugin)], path


def test_each_node_is_shown_as_it_goes_on(story: tuple[list[str], Path], tmp_path: Path) -> None:
    fails = {"type": "core:Fail", "inputValues": {"message": "no [b]luck"}}
    nodes = {id: {"type": "acme-story:Wait", "inputValues": {"go": str(tmp_path / id)}} for id in "ab"} | {"f": fails}
    nodes["a"]["displayName"] = "evil\x1b[2J\x07\nname"  # a name cannot steer the terminal
    path = write(tmp_path, nodes, name="W\x1b[31m")
    name, quick = "W\\x1b[31m", "a (evil\\x1b[2J\\x07 name)"

    def goes_on(text: str) -> None:
        """Let a node end once it is seen to run."""
        if f"▸ {quick}" in text:
            (tmp_path / "a").touch()
        if f"✓ {quick}" in text and "▸ b (acme-story:Wait)" in text and f"2/3 {name} · " in text:
            (tmp_path / "b").touch()

    code, screen, _ = on_screen(*story[0], "workflow", "run", path, until=goes_on)

    assert (code, (tmp_path / "a").exists(), (tmp_path / "b").exists()) == (1, True, True)
    lines = screen.text.splitlines()
    assert lines[0].startswith(f"{name}: error after ") and lines[0].endswith(" · 3 nodes: 2 done, 1 failed")
    assert [line.split()[:2] for line in lines[1:4]] == [["✓", "a"], ["✓", "b"], ["✗", "f"]]
    assert lines[3].endswith("no [b]luck")
    assert lines[-1] == "Error: node f (Fail): no [b]luck"


def test_text_is_shown_as_it_comes_and_stays_whole(story: tuple[list[str], Path]) -> None:
    options, path = story

    def goes_on(text: str) -> None:
        """Let the story go on once its beginning is seen."""
        if "▸ t" in text and "Story: word0" in text and "word19" not in text:
            path.with_name("go").touch()

    code, screen, _ = on_screen(*options, "workflow", "run", path, until=goes_on)

    whole = "Story: " + "".join(f"word{number} " for number in range(20))
    assert (code, path.with_name("go").exists()) == (0, True)
    assert whole.strip() in screen.text.replace("\n", "") and screen.text.count("word3 ") == 1


def test_text_that_goes_into_a_file_is_not_shown_and_the_nodes_are(
    story: tuple[list[str], Path], tmp_path: Path
) -> None:
    options, path = story
    path.with_name("go").touch()

    code, screen, _ = on_screen(*options, "workflow", "run", path, redirect_out=tmp_path / "out.txt")

    assert (code, "word3" in screen.text, "✓ t" in screen.text) == (0, False, True)
    assert (tmp_path / "out.txt").read_text() == "Story: " + "".join(f"word{n} " for n in range(20)) + "\n"


def test_many_nodes_take_a_few_lines(tmp_path: Path) -> None:
    nodes = {f"n{i}": {"type": "core:UpperCase", "inputValues": {"text": "a"}} for i in range(1200)}
    path = write(tmp_path, {**nodes, "w": wait(0.5), "f": {"type": "core:Fail", "inputValues": {"message": "no"}}})

    code, screen, seen = on_screen("workflow", "run", path)
    piped = tavern("workflow", "run", path)

    assert code == piped.code == 1
    assert max(len(text.splitlines()) for text in seen) < 15
    assert any("/1,202 Work" in text for text in seen)
    assert " · 1,202 nodes: 1,201 done, 1 failed" in screen.text
    assert len(piped.err.splitlines()) < 10
    assert "f (core:Fail) failed: no\n" in piped.err
    assert "1,202 nodes: 1,201 done, 1 failed\n" in piped.err


def test_ctrl_c_on_a_narrow_terminal_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, {"a" * 70: wait(0.2, "中" * 40), "b": wait(60)})

    code, screen, _ = on_screen("workflow", "run", path, columns=40, until=lambda text: "✓ a" in text and "▸ b" in text)

    lines = screen.text.strip().splitlines()
    assert (code, len(lines)) == (130, 5), lines
    assert lines[0].startswith("Work: interrupted after ")
    assert "…" in lines[1] and lines[2].startswith("■ b (core:Wait)")
    assert lines[-1] == "interrupted"


@pytest.mark.parametrize("options", [["--verbose"], []])
def test_where_the_foot_of_a_terminal_cannot_be_kept_there_are_lines(tmp_path: Path, options: list[str]) -> None:
    path = write(tmp_path, {"a": wait(0.01)})
    terminal = "xterm" if options else "dumb"

    code, screen, _ = on_screen(*options, "workflow", "run", path, TERM=terminal)

    assert code == 0
    assert "a (core:Wait) …\na (core:Wait) done\n" in screen.text and "✓" not in screen.text
