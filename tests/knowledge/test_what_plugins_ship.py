"""Knowledge bases and triggers that plugins ship: there while the plugin is, and the project's own where it changes
them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import refused

from tavern_host import Host
from tavern_host.contracts.errors import Conflict
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, KnowledgeEntry
from tavern_triggers.api.triggers import TRIGGER_MANAGER

BASE = {"kb_id": "lore", "kb_displayName": "Lore", "entries": [{"id": "dragon", "content": {"value": "A red dragon."}}]}
TRIGGER = {"name": "Daily", "kind": "schedule", "config": {"cron": "0 8 * * *"}, "workflow": "hello"}
HELLO = {"name": "Hello", "nodes": [{"id": "out", "type": "core:GroupOutput"}], "edges": []}
SHIPS = {
    "knowledge": {"entry": "./knowledge"},
    "triggers": {"entry": "./triggers"},
    "workflows": {"entry": "./workflows"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plugin with a knowledge base, and a trigger of its own workflow."""
    files = {"knowledge/lore.json": BASE, "triggers/daily.json": TRIGGER, "workflows/hello.json": HELLO}
    return write_plugin(tmp_path / "acme", {name: json.dumps(one) for name, one in files.items()}, **SHIPS)


async def test_a_plugin_ships_a_knowledge_base(tmp_path: Path, folder: Path) -> None:
    async with Host(tmp_path / "inn", plugins=[folder]) as host:
        knowledge = host.services.get(KNOWLEDGE_BASE)
        (lore,) = [base for base in await knowledge.bases() if base.id == "lore"]
        assert (lore.name, lore.entries, lore.file) == ("Lore", 1, "plugin:acme/lore.json")
        assert [hit.id for hit in await knowledge.search("dragon", bases=["lore"])] == ["dragon"]
        await refused(
            [(knowledge.delete_base("lore"), Conflict, "with the plugin acme and cannot be deleted (`tavern")]
        )

        await host.disable("acme")
        assert [base.id for base in await knowledge.bases() if base.id == "lore"] == []
        await host.enable("acme")
        assert (await knowledge.get("lore", "dragon")).entry.content.value == "A red dragon."


async def test_a_base_that_is_written_is_the_projects_own(tmp_path: Path, folder: Path) -> None:
    before = (folder / "knowledge" / "lore.json").read_bytes()
    async with Host(tmp_path / "inn", plugins=[folder]) as host:
        knowledge = host.services.get(KNOWLEDGE_BASE)
        await knowledge.put("lore", [KnowledgeEntry.model_validate({"id": "inn", "content": {"value": "An inn."}})])
        (lore,) = [base for base in await knowledge.bases() if base.id == "lore"]
        assert (lore.entries, lore.file) == (2, "knowledge/lore.json")
        assert (folder / "knowledge" / "lore.json").read_bytes() == before

        await host.disable("acme")
        assert len((await knowledge.list_entries("lore")).entries) == 2
        await host.enable("acme")
        assert await knowledge.delete_base("lore")
        assert [stored.entry.id for stored in (await knowledge.list_entries("lore")).entries] == ["dragon"]


async def test_a_trigger_of_a_plugin_is_off_until_somebody_switches_it_on(tmp_path: Path, folder: Path) -> None:
    async with Host(tmp_path / "inn", plugins=[folder]) as host:
        triggers = host.services.get(TRIGGER_MANAGER)
        (daily,) = await triggers.list_triggers()
        assert (daily.id, daily.status, daily.plugin) == ("daily", "off", "acme")
        assert (await triggers.enable("daily")).status == "on"
        await refused([(triggers.delete("daily"), Conflict, "comes with the plugin acme and cannot be deleted")])

        (folder / "triggers" / "daily.json").write_text(json.dumps({**TRIGGER, "config": {"everySeconds": 5}}))
        assert (await triggers.get("daily")).status == "changed", "what fires is what somebody has switched on"
        await host.disable("acme")
        assert await triggers.list_triggers() == []


async def test_a_trigger_of_the_project_takes_the_place_of_a_plugins(tmp_path: Path, folder: Path) -> None:
    async with Host(tmp_path / "inn", plugins=[folder]) as host:
        triggers = host.services.get(TRIGGER_MANAGER)
        shipped = (await triggers.get("daily")).trigger
        assert shipped is not None
        saved = await triggers.save("daily", shipped.model_copy(update={"name": "Mine"}))
        assert (saved.plugin, saved.trigger and saved.trigger.name) == ("", "Mine")
        await triggers.delete("daily")
        assert (await triggers.get("daily")).plugin == "acme"
