"""In which order plugins are loaded, and what becomes of those whose requirements are not met."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_maker import host_with, make_plugin, problems_of

from tavern_host import Host
from tavern_host.contracts.manifest import Manifest, Requires
from tavern_host.contracts.plugins import PluginState
from tavern_host.plugins.ordering import dependency_problems, load_order
from tavern_host.plugins.record import Record


def requiring(parent: Path, name: str, *others: str, **manifest: object) -> Path:
    """Write a plugin that requires others; `name==range` asks for a version."""
    wanted = {other.partition("=")[0]: other.partition("=")[2] for other in others}
    return make_plugin(parent, name, requires={"plugins": wanted}, **manifest)


def names(host: Host, *wanted: str) -> list[str]:
    return [p.name for p in host.plugins() if p.name in wanted]


def test_plugins_load_by_party_requirement_and_name(tmp_path: Path) -> None:
    folders = [
        requiring(tmp_path, "alpha", "omega"),
        requiring(tmp_path, "beta"),
        requiring(tmp_path, "omega", "tavern-engine"),
    ]
    host = host_with(tmp_path / "p", *folders)
    plugins = host.link()
    first_party = [p.first_party for p in plugins]
    assert first_party == sorted(first_party, reverse=True)
    assert names(host, "alpha", "beta", "omega") == ["beta", "omega", "alpha"]


GRAPHS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.booleans(), st.sets(st.sampled_from("abcdefghz"), max_size=3)), max_size=8
)


@settings(deadline=None)
@given(GRAPHS)
def test_any_graph_loads_requirements_first(
    graph: dict[str, tuple[bool, set[str]]],
) -> None:
    records = []
    for name, (first_party, wanted) in graph.items():
        requires = Requires(plugins=dict.fromkeys(sorted(wanted), ""))
        manifest = Manifest(name=name, display_name=name, version="1", requires=requires)
        records.append(Record(name, "here", first_party=first_party, manifest=manifest))
    ordered = {record.name: record for record in load_order(records)}
    assert sorted(ordered) == sorted(graph)
    for name, problems in dependency_problems(ordered):
        assert all(problem.message.startswith("it requires ") for problem in problems)
        ordered[name].refuse(PluginState.INCOMPATIBLE, *problems)
    usable = [name for name, record in ordered.items() if record.state is PluginState.DISCOVERED]
    for place, name in enumerate(usable):
        assert graph[name][1] <= set(usable[:place])


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        (["omga"], "it requires the plugin omga, which is not installed (did you mean omega?)"),
        (["qqqqq"], "it requires the plugin qqqqq, which is not installed (install the plugin qqqqq)"),
        (["omega=>=2"], "it requires omega >=2; 1.0.0 is installed (install a version of omega that fits)"),
        (["broken"], "it requires broken, which is invalid (see `tavern plugins show broken`)"),
        (["old"], "it requires old, which is incompatible (see `tavern plugins show old`)"),
        (["asks"], "it requires asks, which is needs-review (see `tavern plugins show asks`)"),
        (["acme"], "it requires acme, which in turn requires acme (remove one of the two requirements)"),
    ],
)
def test_a_requirement_that_is_not_met_is_told(tmp_path: Path, others: list[str], problem: str) -> None:
    folders = [
        requiring(tmp_path, "acme", *others),
        requiring(tmp_path, "omega"),
        requiring(tmp_path, "broken", hoks=1),
        requiring(tmp_path, "old", apiVersion="<0.1"),
        make_plugin(tmp_path, "asks", hooked=["tavern_before_execute"]),
    ]
    host = host_with(tmp_path / "p", *folders, trust=[])
    host.link()
    assert host.plugin("acme").state is PluginState.INCOMPATIBLE
    assert problems_of(host) == [problem]


def test_pre_releases_count_as_within_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tavern_host.plugins.review.__version__", "0.1.1.dev3")
    folders = [requiring(tmp_path, "acme", "omega=>=1,<3"), requiring(tmp_path, "omega", version="2.0.0rc1")]
    host = host_with(tmp_path / "p", *folders)
    host.link()
    assert {p.state for p in host.plugins()} == {PluginState.DISCOVERED}


@pytest.mark.parametrize("runtime", [{"placement": "process"}, {"wire": 2}])
def test_unsupported_placements_are_incompatible(tmp_path: Path, runtime: dict[str, object]) -> None:
    host = host_with(tmp_path / "p", make_plugin(tmp_path, "acme", runtime=runtime))
    host.link()
    assert problems_of(host) == [
        "it asks to run in a process of its own, or for another wire version (this host runs wire 1, in process)"
    ]


# --- when what is required goes ----------------------------------------------------------------------


RECORDS = """
from tavern_host import hookimpl

@hookimpl
def tavern_startup(context):
    (context.project.root / "life.txt").open("a").write(f"+{context.plugin} ")

@hookimpl
def tavern_shutdown(context):
    (context.project.root / "life.txt").open("a").write(f"-{context.plugin} ")
"""
HOOKED = ["tavern_startup", "tavern_shutdown"]


def recording(parent: Path, name: str, *others: str, code: str = RECORDS) -> Path:
    """Write a plugin that writes down when it starts and stops."""
    return make_plugin(parent, name, code, hooked=HOOKED, requires={"plugins": dict.fromkeys(others, "")})


def life(host: Host) -> str:
    return (host.project.root / "life.txt").read_text().strip()


async def test_plugins_stop_in_reverse_load_order(tmp_path: Path) -> None:
    folders = [recording(tmp_path, "a", "c"), recording(tmp_path, "b"), recording(tmp_path, "c")]
    async with host_with(tmp_path / "p", *folders) as host:
        assert life(host) == "+b +c +a"
    assert life(host) == "+b +c +a -a -c -b"


async def test_dependents_of_a_failed_startup_are_unloaded(tmp_path: Path) -> None:
    broken = RECORDS.replace("    (context", "    raise RuntimeError('no')\n    (context", 1)
    folders = [recording(tmp_path, "a", code=broken), recording(tmp_path, "b", "a"), recording(tmp_path, "c")]
    async with host_with(tmp_path / "p", *folders) as host:
        assert life(host) == "+c"
        assert host.plugin("a").state is PluginState.FAILED
        assert host.plugin("b").state is PluginState.INCOMPATIBLE
        assert host.plugin("b").contributions == {}
