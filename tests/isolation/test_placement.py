"""Where a plugin runs is for the operator to say, then for its manifest; none runs in the host's process in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.plugin_files import write_whole
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.plugins import PluginState

IN, OWN, PLAIN = "in-process", "process", "process-without-sandbox"
REFUSED = "it cannot run in a process of its own, as it is placed: its manifest says so (runtime.placement)"

ROWS: list[tuple[str, dict[str, str], str | None, str]] = [
    ("any", {}, None, IN),
    ("process", {}, None, OWN),
    ("in-process", {}, None, IN),
    ("any", {"acme": OWN}, None, OWN),
    ("any", {"thirdParty": OWN}, None, OWN),
    ("any", {"thirdParty": OWN, "acme": IN}, None, IN),
    ("process", {"acme": IN}, None, IN),
    ("process", {"thirdParty": IN}, None, OWN),
    ("any", {}, OWN, OWN),
    ("any", {}, PLAIN, PLAIN),
    ("process", {"thirdParty": PLAIN}, IN, IN),
    ("any", {"acme": IN}, OWN, IN),
]
"""The manifest's `runtime.placement`, `placement` in host.yaml, what the operator said since, and where it runs."""


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's folder of configuration."""
    monkeypatch.setenv("TAVERN_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


def linked(tmp_path: Path, operator: Path, manifest: str, said: dict[str, str]) -> Host:
    """A host that has looked at the plugin acme."""
    code = {"__init__.py": "pass\n"}
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", code, runtime={"placement": manifest})
    placement = ", ".join(f"{name}: {where}" for name, where in said.items())
    (operator / "host.yaml").write_text(f"trust: [acme]\nplacement: {{{placement}}}\n")
    host = Host(tmp_path / "project", create=True, trust=["acme"])
    host.link()
    return host


async def test_the_operator_decides_where_a_plugin_runs_and_then_its_manifest(tmp_path: Path, operator: Path) -> None:
    with Failures() as failures:
        for number, (manifest, said, since, where) in enumerate(ROWS):
            with failures.row(f"{manifest} {said} {since}"):
                folder = tmp_path / str(number)
                host = linked(folder, operator, manifest, {**said} if since is None else {})
                if since is not None:
                    await host.place("acme", since)  # type: ignore[arg-type]
                    host = linked(folder, operator, manifest, said)
                plugin = host.plugin("acme")
                assert (plugin.placement, plugin.state, plugin.problems) == (where, PluginState.DISCOVERED, [])


@pytest.mark.parametrize("said", [{"acme": OWN}, {"thirdParty": OWN}, {"acme": PLAIN}])
def test_a_plugin_that_needs_the_hosts_process_is_refused_another(
    said: dict[str, str], tmp_path: Path, operator: Path
) -> None:
    plugin = linked(tmp_path, operator, "in-process", said).plugin("acme")
    assert plugin.state is PluginState.INCOMPATIBLE
    assert plugin.problems[0].message == REFUSED
    assert "placement: {acme: in-process}" in (plugin.problems[0].hint or "")


async def test_what_stands_in_host_yaml_and_the_hosts_own_are_not_placed_otherwise(
    tmp_path: Path, operator: Path
) -> None:
    host = linked(tmp_path, operator, "any", {"acme": IN})
    with pytest.raises(Conflict, match="acme is in-process in host.yaml"):
        await host.place("acme", OWN)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="tavern-tools is first-party and runs in the host's process"):
        await host.place("tavern-tools", OWN)  # type: ignore[arg-type]


def test_what_a_process_reaches_and_sees_is_asked_for_as_permissions(tmp_path: Path) -> None:
    asked = {"network": ["api.example.com", "*"], "files": {"read": ["notes"], "write": ["/srv/acme"]}}
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", {"__init__.py": "pass\n"}, runtime=asked)
    host = Host(tmp_path / "project", create=True)
    host.link()
    plugin = host.plugin("acme")
    named = {one.name: (one.level, one.granted) for one in plugin.permissions}
    wanted = ["network:api.example.com", "files.read:notes", "files.write:/srv/acme"]
    assert [named[name] for name in wanted] == [("intercept", False)] * 3
    (anywhere,) = [one for one in plugin.permissions if one.name == "network:*"]
    assert anywhere.description == "Reach any public host from a process of its own."
    assert plugin.state is PluginState.NEEDS_REVIEW
