"""The page about `/ws` names every message that clients may send and every event of the first-party plugins."""

from __future__ import annotations

import re
from pathlib import Path

from tavern_engine.api.runs import RUNS_CHANGED
from tavern_host.events.bus import KEPT, KEPT_BYTES, THIN_AT, WAITING_BYTES
from tavern_host.plugins.manifest import read_manifest
from tavern_host.server import websocket
from tavern_host.testing.http import HttpClient

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "websocket.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of the table under a heading, by its first column."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in table}


async def test_the_page_names_every_message_of_clients(site: HttpClient) -> None:
    registered = {type: one.info.access for type, one in site.host.registrations.messages.items()}
    known = {type: access for type, access in registered.items() if not type.startswith("ACME_")}
    assert {type: cells[0] for type, cells in rows("Messages from clients").items()} == known | websocket.OWN_MESSAGES


def test_the_page_names_every_event() -> None:
    patterns = {"SETTINGS_CHANGED": "the host", "PLUGINS_CHANGED": "the host"}
    for folder in sorted((ROOT / "plugins").glob("tavern_*/plugin.yaml")):
        manifest, *_ = read_manifest(folder.parent, first_party=True)
        published = manifest.permissions.events.publish
        if manifest.name == "tavern-postgres":  # the rest it only passes on from plugins of other hosts
            passed_on = {*published} - {RUNS_CHANGED}
            published = [RUNS_CHANGED]
        patterns |= {type: manifest.name for type in published if type != "TOOLS_CHANGED"}
    assert passed_on <= patterns.keys() and len(passed_on) == 5
    assert patterns.pop("NODE_*") == "tavern-engine"
    of_runs = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins/tavern_engine/run").rglob("*.py"))
    nodes = dict.fromkeys(re.findall(r'"(NODE_[A-Z]+)"', of_runs), "tavern-engine")
    events = {type: cells[-1] for type, cells in rows("Events").items()}
    assert events.pop("TOOLS_CHANGED") == "tavern-agents"
    assert events == patterns | nodes


def test_the_page_names_the_limits_in_force() -> None:
    for limit in (
        f"{websocket.MAX_MESSAGE >> 20} MiB",
        f"{websocket.WAITING:,}, and {WAITING_BYTES >> 20} MiB",
        f"one client | {THIN_AT:,} |",
        f"{websocket.SEND_DEADLINE:.0f} s without",
        f"every {websocket.HEARTBEAT:.0f} s | {websocket.HEARTBEAT / 2:.0f} s",
        f"{websocket.MOST_SOCKETS:,}",
        f"newest {KEPT:,} events, {KEPT_BYTES >> 20} MiB",
    ):
        assert limit in PAGE, limit
