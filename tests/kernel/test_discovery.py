"""Finding plugins: by entry points and in folders, without importing them, and nobody's mistake is another's loss."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from plugin_maker import install, make_plugin, problems_of, write

from tavern_host import Host
from tavern_host.contracts.plugins import PluginInfo, PluginState

EXPLODES = "raise AssertionError('it was imported')\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def linked(project: Path, **options: object) -> Host:
    """Return a host that has read all manifests."""
    host = Host(project, **options)  # type: ignore[arg-type]
    host.link()
    return host


def named(host: Host, name: str) -> list[PluginInfo]:
    """Return every plugin of a name, the one that is used first."""
    return [p for p in host.plugins() if p.name == name]


def test_an_installed_package_is_found_and_not_imported(tmp_path: Path, site: Path) -> None:
    install(site, "acme_pack", EXPLODES, entry="acme")
    plugin = linked(tmp_path / "p").plugin("acme")
    assert (plugin.state, plugin.source, plugin.first_party) == (PluginState.DISCOVERED, "entry-point:acme_pack", False)
    assert "acme_pack" not in sys.modules


def test_nested_packages_are_found_without_importing(tmp_path: Path, site: Path) -> None:
    install(site / "outer", "inner", EXPLODES, entry="acme", dist="x")
    write(site / "outer" / "__init__.py", EXPLODES)
    (site / "outer" / "x-1.0.0.dist-info").rename(site / "x-1.0.0.dist-info")
    (site / "x-1.0.0.dist-info" / "entry_points.txt").write_text("[tavern_host.plugins]\nacme = outer.inner\n")
    (site / "x-1.0.0.dist-info" / "RECORD").write_text("outer/inner/__init__.py,,\nouter/inner/plugin.yaml,,\n")
    assert linked(tmp_path / "p").plugin("acme").state is PluginState.DISCOVERED
    assert "outer" not in sys.modules


def test_hidden_project_folders_are_not_found(tmp_path: Path) -> None:
    for name in ("acme", ".hidden", "_old"):
        make_plugin(tmp_path / "p" / "plugins", name, EXPLODES, **{"name": "acme"})
    (tmp_path / "p" / "plugins" / "README.md").write_text("not a plugin")
    (plugin,) = named(linked(tmp_path / "p"), "acme")
    assert plugin.source == f"folder:{tmp_path / 'p' / 'plugins' / 'acme'}"


async def test_no_decision_admits_an_invalid_plugin(tmp_path: Path, site: Path) -> None:
    install(site, "acme_pack", EXPLODES, entry="acme", name="another")
    make_plugin(tmp_path / "p" / "plugins", "broken").joinpath("plugin.yaml").write_text("][")
    async with Host(tmp_path / "p") as host:
        invalid = [p for p in host.plugins() if p.state is PluginState.INVALID]
        assert str(next(p for p in invalid if p.source == "entry-point:acme_pack").problems[0]) == (
            "acme_pack/plugin.yaml:1:1: the entry point is called 'acme', the manifest 'another' "
            "(give both the same name)"
        )
        for plugin in invalid:
            await host.revoke(plugin.name)
            assert host.plugin(plugin.name).state is PluginState.INVALID
            assert host.plugin(plugin.name).problems
            with pytest.raises(Exception, match="cannot be granted anything"):
                await host.grant(plugin.name)
    assert len(invalid) == 2
    assert "acme_pack" not in sys.modules


def test_a_package_that_is_not_there_is_told(tmp_path: Path, site: Path) -> None:
    (install(site, "bare_pack", entry="bare") / "plugin.yaml").unlink()
    values = {"acme": "gone_pack", "acme-a": "acme_pack.gone", "acme-b": "json.nope.deeper"}
    for name, value in values.items():
        install(site, f"{name.replace('-', '_')}_pack", entry=name, value=value)
    host = linked(tmp_path / "p")
    told = f"there is no plugin.yaml in {site / 'bare_pack'} (every plugin needs one beside its code)"
    assert problems_of(host, "bare") == [told]
    for name, value in values.items():
        assert host.plugin(name).state is PluginState.INVALID
        assert problems_of(host, name) == [
            f"the package {value!r} of the entry point {name!r} cannot be found "
            f"(reinstall {name.replace('-', '_')}_pack; the entry point must name an importable package)"
        ]


@pytest.mark.parametrize("value", ["not a module!", "", ":x", "a..b", "-"])
def test_nonsense_entry_points_cost_one_plugin(tmp_path: Path, site: Path, value: str) -> None:
    install(site, "acme_pack", entry="acme")
    (site / "acme_pack-1.0.0.dist-info" / "entry_points.txt").write_text(f"[tavern_host.plugins]\nacme = {value}\n")
    host = linked(tmp_path / "p")
    assert host.plugin("tavern-engine").state is PluginState.DISCOVERED
    assert [p.state for p in named(host, "acme")] in ([], [PluginState.INVALID])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("entry_points.txt", b"[tavern_host.plugins]\nno equals sign\n"),
        ("entry_points.txt", b"[tavern_host.plugins]\n\xff = acme_pack\n"),
        ("entry_points.txt", b"[console_scripts]\n\xff\n"),
        ("METADATA", b"Metadata-Version: 2.1\nName: \xff\n"),
        ("METADATA", b""),
    ],
)
def test_a_damaged_distribution_costs_nobody_else(tmp_path: Path, site: Path, file: str, content: bytes) -> None:
    install(site, "acme_pack", entry="acme")
    install(site, "other_pack", entry="other")
    (site / "acme_pack-1.0.0.dist-info" / file).write_bytes(content)
    host = linked(tmp_path / "p")
    assert host.plugin("tavern-engine").state is PluginState.DISCOVERED
    assert host.plugin("tavern-engine").first_party
    assert host.plugin("other").state is PluginState.DISCOVERED
    assert len([p for p in host.plugins() if p.first_party]) == len({p.name for p in host.plugins() if p.first_party})


# --- two of one name ---------------------------------------------------------------------------------


def test_the_second_of_two_namesakes_is_refused(tmp_path: Path, site: Path) -> None:
    install(site, "acme_pack", entry="acme")
    install(site, "aaa_pack", EXPLODES, entry="tavern-engine")
    for name in ("acme", "tavern-engine"):
        make_plugin(tmp_path / "p" / "plugins", name, EXPLODES if name != "acme" else None)
    host = linked(tmp_path / "p")
    used, refused = named(host, "acme")
    assert (used.source, used.state) == ("entry-point:acme_pack", PluginState.DISCOVERED)
    assert refused.state is PluginState.INVALID
    assert str(refused.problems[0]) == (
        "the name 'acme' is taken by the plugin from entry-point:acme_pack (remove one of the two)"
    )
    used, *replacing = named(host, "tavern-engine")
    assert (used.first_party, used.state) == (True, PluginState.DISCOVERED)
    assert [plugin.state for plugin in replacing] == [PluginState.INVALID] * 2, "neither package nor folder replaces it"


def test_a_misnamed_plugin_takes_no_name(tmp_path: Path, site: Path) -> None:
    install(site, "aaa_pack", EXPLODES, entry="aaa", name="acme")
    install(site, "acme_pack", entry="acme")
    host = linked(tmp_path / "p")
    assert host.plugin("acme").source == "entry-point:acme_pack"
    assert host.plugin("acme").state is PluginState.DISCOVERED


# --- folders that are not what they seem -------------------------------------------------------------


def test_links_out_of_a_plugin_are_refused(tmp_path: Path) -> None:
    plugins, files = tmp_path / "p" / "plugins", tmp_path / "p" / "files"
    outside = make_plugin(tmp_path / "elsewhere", "outside", EXPLODES)
    folder, file = (make_plugin(plugins, name, nodes={"entry": "./nodes"}) for name in ("folder", "file"))
    write(files / "nodes" / "__init__.py", EXPLODES)
    (plugins / "outside").symlink_to(outside)
    (folder / "nodes").symlink_to(files / "nodes")
    (file / "nodes").symlink_to(files / "nodes" / "__init__.py")
    within = make_plugin(plugins, "within")
    (within / "notes.txt").write_text("hello")
    (within / "README").symlink_to("notes.txt")
    host = linked(tmp_path / "p")
    for name, told in {
        "outside": f"{plugins / 'outside'} leads out of {plugins} (copy the plugin there instead of linking it)",
        "folder": f"{folder / 'nodes'} leads out of {folder} (copy what it needs there)",
        "file": f"{file / 'nodes'} leads out of {file} (copy what it needs there)",
    }.items():
        assert (host.plugin(name).state, problems_of(host, name)) == (PluginState.INVALID, [told])
    assert host.plugin("within").state is PluginState.DISCOVERED


def test_undecodable_file_names_do_no_harm(tmp_path: Path) -> None:
    plugin = make_plugin(tmp_path / "p" / "plugins", "acme", "")
    (Path(os.fsdecode(os.fsencode(plugin) + b"/\xff.txt"))).write_text("x")
    host = linked(tmp_path / "p")
    assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
    assert host.plugin("tavern-engine").state is PluginState.DISCOVERED


# --- what a host is given ----------------------------------------------------------------------------


def test_the_current_folder_may_be_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_plugin(tmp_path, "acme")
    (folder / "plugin.yaml").write_text("displayName: nameless\n")
    monkeypatch.chdir(folder)
    host = linked(tmp_path / "p", dev=[Path(), tmp_path / "nope"])
    assert host.plugin("acme").source == f"dev:{folder}"
    assert problems_of(host)[0] == "acme/plugin.yaml:1:1: the key 'name' is missing"
    assert problems_of(host, "nope")[0].startswith(f"there is no plugin.yaml in {tmp_path / 'nope'}")


async def test_dev_plugins_need_no_grant(tmp_path: Path) -> None:
    code = "from tavern_host import hookimpl\n@hookimpl\ndef tavern_before_execute(request): pass\n"
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_before_execute"])
    async with Host(tmp_path / "p", dev=[folder]) as host:
        plugin = host.plugin("acme")
        assert (plugin.state, plugin.source) == (PluginState.STARTED, f"dev:{folder}")
    assert linked(tmp_path / "p", plugins=[folder]).plugin("acme").state is PluginState.NEEDS_REVIEW


async def test_an_embedding_program_hands_over_a_module(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from tavern_host import hookimpl\nRAN = []\n@hookimpl\ndef tavern_startup(): RAN.append(1)\n"
    make_plugin(site, "embedded_pack", code, hooked=["tavern_startup"], name="acme")
    import importlib

    module = importlib.import_module("embedded_pack")
    async with Host(tmp_path / "p", plugins=[module]) as host:
        plugin = host.plugin("acme")
        assert (plugin.state, plugin.source) == (PluginState.STARTED, "embedded:embedded_pack")
        assert module.RAN == [1]
    assert sys.modules["embedded_pack"] is module


def test_a_folder_given_and_installed_counts_once(tmp_path: Path, site: Path) -> None:
    root = install(site, "acme_pkg", entry="acme")
    for how, source in (("dev", "dev"), ("plugins", "folder")):
        (plugin,) = named(linked(tmp_path / "p", **{how: [root]}), "acme")
        assert plugin.state is not PluginState.INVALID
        assert plugin.source.partition(":")[0] == source
    written = make_plugin(tmp_path, "acme", version="2.0.0")
    used, other = named(linked(tmp_path / "p", dev=[written]), "acme")
    assert (used.version, used.state) == ("2.0.0", PluginState.DISCOVERED), "what is being written wins"
    assert other.state is PluginState.INVALID


def test_a_folder_is_one_source_however_its_path_is_written(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path / "plugins", "acme", EXPLODES)
    (tmp_path / "tests").mkdir()
    host = linked(tmp_path / "p", plugins=[tmp_path / "tests" / ".." / "plugins" / "acme"])
    assert host.plugin("acme").source.endswith(f":{folder}")
