"""The platform's examples of front ends: its manifest, its calls, its tables of places and hooks, through the interface
at `window.ComfyTavern.extensionApi`."""

from __future__ import annotations

import re
from pathlib import Path

from documentation.platform import all_permissions
from platform_documents import block, document, section

from tavern_host.contracts.manifest import canonical
from tavern_host.contracts.ui import COMPONENTS, OUTLETS, outlet_base

ARGUMENTS = {
    "ui.addMenuItem": "{ id: 'item', title: 'An entry', run() {} }",
    "ui.addPanel": "{ id: 'panel', title: 'A panel', component: mark('panel') }",
    "ui.registerOutletComponent": "'layout:header:right', mark('outlet')",
    "ui.wrapComponent": "'ui:MainMenu', wrap",
    "ui.overrideComponent": "'ui:StatusBar', mark('override')",
    "nodes.registerUI": "'core:TextMerge', mark('node')",
    "registerNodeUI": "'core:TextMerge', mark('node')",
    "router.addRoute": "{ path: '/board', component: mark('page') }",
    "hooks.on": "'workflow:before-execute', (event) => event",
    "services.get": "'workflowManager'",
    "services.override": "'workflowManager', {}",
    "getConfig": "'enableFeatureX'",
    "onConfigChange": "'enableFeatureX', (value) => value",
}
"""What the examples' calls are given; each call of the documents has an entry here."""


def calls(spec_dir: Path) -> set[str]:
    """Return the calls of the interface that the documents show, by their paths."""
    found = {call for part in ("20.1", "20.2", "20.3", "20.4") for call in _calls(section(spec_dir, "000", part))}
    found |= {call for part in ("21.2", "21.3", "21.4") for call in _calls(section(spec_dir, "000", part))}
    groups = {"hooks": "on", "ui": "wrapComponent registerOutletComponent"}
    example = block(spec_dir, "000", "15.2.2")
    assert all(f"{method}: (" in example for methods in groups.values() for method in methods.split())
    methods = set(re.findall(r"^  (\w+)\(", example, re.MULTILINE))
    return found | methods | {f"{group}.{one}" for group, names in groups.items() for one in names.split()}


def _calls(text: str) -> list[str]:
    return re.findall(r"`api\.(\w+\.\w+)\(", text)


def column(text: str) -> list[str]:
    """Return the names in the first column of a section's tables."""
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def test_the_catalogue_has_what_the_tables_have(spec_dir: Path) -> None:
    assert [name for name in COMPONENTS if name != "ui:AssistantPanel"] == column(section(spec_dir, "000", "21.2"))
    outlets = column(section(spec_dir, "000", "21.3"))
    assert {outlet_base(name.replace("{panelId}", "nodes")) for name in outlets} | {"modal:footer"} == set(OUTLETS)
    assert calls(spec_dir) == set(ARGUMENTS)


def test_every_name_of_a_hook_in_the_documents_is_a_permission(spec_dir: Path) -> None:
    written = r"hook:(?:client|server):[a-z]+:[a-z:-]*[a-z]|(?<!:)\b[a-z]+:(?:[a-z]+:)?(?:before|after|login)\b[a-z-]*"
    found = {name for number in range(5) for name in re.findall(written, document(spec_dir, f"00{number}"))}
    names = {name for name in found if outlet_base(name) not in OUTLETS and not name.startswith("bar:")}
    assert len(names) == 8 and set(column(section(spec_dir, "000", "21.4"))) < names
    assert {canonical(name) for name in names} <= {permission.name for permission in all_permissions()}
