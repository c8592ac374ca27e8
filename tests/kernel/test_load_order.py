"""In which order plugins are loaded, and what becomes of those whose requirements are not met."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.repetition import Failures
from hypothesis import given
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


def test_plugins_load_by_party_requirement_and_name(tmp_path: Path) -> None:
    wanted = {"alpha": ["omega"], "beta": [], "omega": ["tavern-engine"]}
    plugins = host_with(tmp_path / "p", *(requiring(tmp_path, name, *needs) for name, needs in wanted.items())).link()
    first_party = [p.first_party for p in plugins]
    assert first_party == sorted(first_party, reverse=True)
    assert [p.name for p in plugins if p.name in wanted] == ["beta", "omega", "alpha"]


GRAPHS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.booleans(), st.sets(st.sampled_from("abcdefghz"), max_size=3)), max_size=8
)


@given(GRAPHS)
def test_any_graph_loads_requirements_first(graph: dict[str, tuple[bool, set[str]]]) -> None:
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


OTHER_WIRE = "it is made for the wire version 2; this host has 1 (install a version of acme7 for tavern-host 0.1.0)"
UNMET: list[tuple[list[str], dict[str, object], str]] = [
    (["omga"], {}, "it requires the plugin omga, which is not installed (did you mean omega?)"),
    (["qqqqq"], {}, "it requires the plugin qqqqq, which is not installed (install the plugin qqqqq)"),
    (["omega=>=2"], {}, "it requires omega >=2; 1.0.0 is installed (install a version of omega that fits)"),
    (["broken"], {}, "it requires broken, which is invalid (see `tavern plugins show broken`)"),
    (["old"], {}, "it requires old, which is incompatible (see `tavern plugins show old`)"),
    (["asks"], {}, "it requires asks, which is needs-review (see `tavern plugins show asks`)"),
    (["acme6"], {}, "it requires acme6, which in turn requires acme6 (remove one of the two requirements)"),
    ([], {"runtime": {"wire": 2}}, OTHER_WIRE),
]


def test_what_is_not_met_is_told(tmp_path: Path) -> None:
    host = host_with(
        tmp_path / "p",
        *(requiring(tmp_path, f"acme{n}", *others, **manifest) for n, (others, manifest, _) in enumerate(UNMET)),
        requiring(tmp_path, "omega"),
        requiring(tmp_path, "broken", hoks=1),
        requiring(tmp_path, "old", apiVersion="<0.1"),
        make_plugin(tmp_path, "asks", hooked=["tavern_before_execute"]),
        trust=[],
    )
    host.link()
    with Failures() as failures:
        for number, (_, _, problem) in enumerate(UNMET):
            with failures.row(problem):
                assert host.plugin(f"acme{number}").state is PluginState.INCOMPATIBLE
                assert problems_of(host, f"acme{number}") == [problem]


def test_pre_releases_count_as_within_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tavern_host.plugins.review.__version__", "0.1.1.dev3")
    folders = [requiring(tmp_path, "acme", "omega=>=1,<3"), requiring(tmp_path, "omega", version="2.0.0rc1")]
    assert {p.state for p in host_with(tmp_path / "p", *folders).link()} == {PluginState.DISCOVERED}


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
