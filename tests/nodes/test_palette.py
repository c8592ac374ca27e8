"""What the palette shows: every basic node is described, in order, and loaded by a host."""

from __future__ import annotations

from pathlib import Path

from helpers.repetition import Failures

import tavern_nodes.nodes
from tavern_host import Host, NodeDefinition, nodes_of
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.plugins import PluginState

DEFINITIONS = nodes_of(tavern_nodes.nodes)

OWN_CATEGORIES = {"Files", "Flow", "JSON", "Lists", "Numbers", "Streams", "Text", "Web"}
PLATFORM_CATEGORIES = {"Group", "LLM", "Loaders", "Processors", "TEST-LLM", "数学", "实用工具"}


def slots(definition: NodeDefinition) -> list[tuple[str, SlotDefinition]]:
    config = definition.config_schema or {}
    return [*definition.inputs.items(), *definition.outputs.items(), *config.items()]


def test_no_two_nodes_have_one_type() -> None:
    assert len({definition.type for definition in DEFINITIONS}) == len(DEFINITIONS)


def test_every_node_and_every_own_slot_is_described() -> None:
    with Failures() as failures:
        for definition in DEFINITIONS:
            with failures.row(definition.type):
                assert definition.display_name and definition.description.rstrip().endswith(".")
                assert definition.category in OWN_CATEGORIES | PLATFORM_CATEGORIES
                if definition.category in OWN_CATEGORIES:
                    assert [key for key, slot in slots(definition) if not slot.description] == []


async def test_a_host_loads_the_plugin_with_all_its_nodes_under_core(tmp_path: Path) -> None:
    async with Host(project=tmp_path / "project") as host:
        plugin = host.plugin("tavern-nodes")
    assert (plugin.state, plugin.problems) == (PluginState.STARTED, [])
    assert set(plugin.contributions["node"]) == {f"core:{definition.type}" for definition in DEFINITIONS}
