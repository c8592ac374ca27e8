"""Environments of plugins that are really built, from wheels that are written here, and what a process sees of them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.plugin_files import write, write_whole
from helpers.wheel_maker import wheel

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_isolation.environment import environment_of, host_python
from tavern_isolation.installed_packages import required
from tavern_scripts.api.environments import Python
from tests.isolation.environment_bench import ROOT, Bench, bench, project

pytestmark = pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="needs uv: pip install uv")

SAYS = "import alpha, beta; print(alpha.version, beta.version)"
HOST = (ROOT, ROOT / "plugins")


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, from which alone packages are installed."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    return folder


@pytest.fixture
async def table(tmp_path: Path, links: Path) -> AsyncIterator[Bench]:
    """A bench whose builds take wheels from `links`."""
    async with bench(tmp_path) as made:
        yield made


def add(links: Path, name: str, version: str = "1.0", *requires: str) -> str:
    """Write a wheel with one module; return its hash."""
    file = wheel(links, name, version, {f"{name}.py": f"version = {version!r}"}, requires=requires)
    return hashlib.sha256(file.read_bytes()).hexdigest()


async def another_python(table: Bench) -> Python:
    """Return a Python of this machine that has another minor version than that of the tests."""
    mine = host_python().version.rpartition(".")[0]
    for one in await table.builds.builder.pythons():
        minor = int(one.version.split(".")[1])
        if minor >= 11 and not one.version.startswith(f"{mine}."):
            return one
    pytest.skip("needs another Python from 3.11 on: uv python install 3.13")


async def test_two_plugins_with_contradicting_versions(table: Bench, links: Path) -> None:
    for version in ("1.0", "2.0"):
        add(links, "beta", version)
    add(links, "alpha", "1.0", "beta")
    old = await table.requiring("alpha", "beta<2", "tavern-host")
    new = await table.requiring("alpha", "beta>=2")
    again = await table.requiring("alpha", "beta<2", "tavern-tools")

    assert (table.said(old, SAYS), table.said(new, SAYS)) == ("1.0 1.0", "1.0 2.0")
    assert old.built and again == old and old.hash != new.hash
    assert "pyproject.toml requires alpha, and it is not installed" in table.reports
    assert table.reports.count(" + beta==1.0") == 1, "it is built once"
    assert "alpha" not in str(old.packages) and "pydantic" in old.packages


async def test_a_process_runs_with_what_it_has_and_nothing_else(table: Bench, links: Path) -> None:
    add(links, "alpha")
    built = await table.requiring("alpha")
    for environment in (built, await table.of()):
        assert table.said(environment, "import tavern_isolation.child.main, aiohttp, yaml; print('ok')", *HOST) == "ok"
        for name in ("pytest", "hypothesis", "uv"):
            lost = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
            assert table.said(environment, lost, *HOST) == "None"


async def test_what_a_plugin_requires_takes_the_place_of_the_hosts(table: Bench, links: Path) -> None:
    add(links, "networkx", "3.3")
    other = await table.requiring("networkx<3.4")
    asks = "import networkx, importlib.metadata as m; print(networkx.version, m.version('networkx'))"
    assert table.said(other, asks) == "3.3 3.3"
    assert "networkx" not in other.packages and "pydantic" in other.packages


async def test_a_plugin_that_contradicts_the_host_is_told_so(table: Bench, links: Path) -> None:
    add(links, "pydantic", "1.10")
    with pytest.raises(
        Misconfigured,
        match=r"acme-notes: what pyproject.toml asks for .*tavern-host and what it requires need pydantic>=2",
    ):
        await table.requiring("pydantic<2")
    with pytest.raises(Misconfigured, match="acme-notes: what pyproject.toml asks for could not be installed: .*alpha"):
        await table.requiring("alpha")
    assert not [*(table.folder / "environments").glob("*/content")]


async def test_hashes_are_held_to(table: Bench, links: Path) -> None:
    digest = add(links, "alpha")
    found = await table.of(requirements=f"alpha==1.0 --hash=sha256:{digest}\n")
    assert table.said(found, "import alpha; print(alpha.version)") == "1.0"
    with pytest.raises(Misconfigured, match="requirements.txt asks for could not be installed"):
        await table.of(requirements=f"alpha==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(Misconfigured, match="all requirements must have their versions pinned"):
        await table.of(requirements=f"alpha>=1.0 --hash=sha256:{digest}\n")


async def test_advisories_are_asked_before_anything_is_installed(tmp_path: Path, links: Path) -> None:
    add(links, "beta")
    add(links, "alpha", "1.0", "beta")
    affected = {"package": {"ecosystem": "PyPI", "name": "beta"}, "versions": ["1.0"]}
    (tmp_path / "database.json").write_text(json.dumps({"id": "OSV-1", "affected": [affected]}))
    async with bench(tmp_path, database=str(tmp_path / "database.json")) as table:
        with pytest.raises(Misconfigured, match=r"acme-notes: nothing is installed, .* beta 1.0 \(OSV-1: no version"):
            await table.requiring("alpha")
        assert not [line for line in table.reports if "Installed" in line or "Prepared" in line]
        assert not [*(tmp_path / "environments").glob("*/content")]


async def test_what_is_in_use_is_not_removed(table: Bench, links: Path) -> None:
    add(links, "alpha")
    add(links, "beta")
    used, unused = await table.requiring("alpha"), await table.requiring("beta")
    for lock in (table.folder / "environments").glob("*.lock"):
        os.utime(lock, (0, 0))
    builder = table.builds.builder
    with builder.held(used.built[0]):
        assert await builder.prune(0) == [unused.built[0].parent.parent.name]
    assert used.built[0].is_dir() and not unused.built[0].exists()
    assert await builder.prune(0) == [used.built[0].parent.parent.name]
    assert not [*(table.folder / "environments").iterdir()]


async def test_builders_at_once_build_once(table: Bench, links: Path) -> None:
    add(links, "alpha")
    (table.folder / "acme_notes").mkdir()
    (table.folder / "acme_notes" / "pyproject.toml").write_text(project("alpha"))
    asked = [environment_of(name, root=table.folder / "acme_notes", builds=table.builds) for name in ("a", "b", "c")]
    found = await asyncio.gather(*asked)
    assert len({one.hash for one in found}) == 1 and table.reports.count(" + alpha==1.0") == 1


async def test_a_python_that_is_not_there(table: Bench) -> None:
    mine = host_python().version
    with pytest.raises(Misconfigured, match=rf"asks for Python ==4\.2\.\* \(runtime.python in plugin.yaml\).*{mine}"):
        await table.of(python="4.2")
    with pytest.raises(Misconfigured, match=r"Python >=4 \(requires-python in pyproject.toml\).*uv python install"):
        await table.of(project("alpha", requires_python=">=4"))


async def test_another_python_has_the_hosts_requirements_in_its_versions(table: Bench, links: Path) -> None:
    other = await another_python(table)
    for one in required(metadata.requires("tavern-host") or (), sys.path, "tavern-host").distributions.values():
        add(links, one.name.replace("-", "_"), one.version)
    add(links, "alpha")
    found = await table.requiring("alpha", python=other.version)
    alone = await table.of(python=f"=={other.version}")

    code = "import sys, alpha, pydantic; print(*sys.version_info[:3], alpha.version, pydantic.version)"
    assert table.said(found, code) == f"{other.version.replace('.', ' ')} 1.0 {metadata.version('pydantic')}"
    assert (found.interpreter, found.python, found.packages) == (other.program, other.version, {})
    assert alone.built == found.built[1:] == found.folders[1:] and alone.hash != found.hash


def plugin(tmp_path: Path, name: str, requirement: str, says: str, **runtime: str) -> None:
    """Write a plugin in a sandbox that requires something, and puts what an expression gives into metadata of runs."""
    code = f"""
    import sys
    from tavern_host import hookimpl

    @hookimpl
    async def tavern_before_execute(request, call, context):
        return request.model_copy(update={{"metadata": {{**request.metadata, {name!r}: {says}}}}})
    """
    root = tmp_path / "project" / "plugins" / name
    write_whole(root, name, code, ["tavern_before_execute"], runtime={"placement": "process", **runtime})
    write(root / "pyproject.toml", project(*filter(None, [requirement]), name=name))


def built(place: Host | Path) -> list[Path]:
    """The environments below a folder, or in the operator's folder for the project of a host."""
    folder = place if isinstance(place, Path) else place.folders.project_state(place.project)
    return [*folder.rglob("environments/*/content")]


async def metadata_of(host: Host) -> dict[str, Any]:
    """Return what plugins put into the metadata of a run."""
    return (await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="w")))).metadata


async def test_contradicting_plugins_work_on_one_run(tmp_path: Path, links: Path) -> None:
    for number in ("1.0", "2.0"):
        add(links, "beta", number)
    says = "__import__('beta').version"
    plugin(tmp_path, "acme-old", "beta<2", says)
    plugin(tmp_path, "acme-new", "beta>=2", says)
    plugin(tmp_path, "acme-lost", "gamma", says)
    names = ("acme-old", "acme-new", "acme-lost")
    async with Host(tmp_path / "project", trust=names) as host:
        assert await metadata_of(host) == {"acme-old": "1.0", "acme-new": "2.0"}
        assert len(built(host)) == 2 and not built(tmp_path / "project"), "no project can bring one"
        lost = host.plugin("acme-lost")
        assert lost.state is PluginState.FAILED
        assert "acme-lost: what pyproject.toml asks for could not be installed" in lost.problems[0].message


NODES = """
import sys
from tavern_host import node

@node(type="Add")
async def add(values: dict) -> dict:
    import numpy
    done = numpy.array(values["numbers"]) + 1
    return {"numbers": done.tolist(), "by": [*values["by"], [numpy.__version__, sys.version_info[1]]]}
"""


@pytest.mark.extended  # it installs 100 MB from the machine's package index
@pytest.mark.timeout(900)
async def test_two_versions_of_numpy_and_another_python_work_on_one_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")  # a machine may have several indexes
    async with bench(tmp_path / "bench") as made:
        minor = (await another_python(made)).version.rpartition(".")[0]
    wanted = {"acme-old": ("numpy==1.26.4", ""), "acme-new": ("numpy>=2,<3", ""), "acme-other": ("numpy>=2,<3", minor)}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for at, (name, (requirement, python)) in enumerate(wanted.items()):
        plugin(tmp_path, name, requirement, "1", **({"python": python} if python else {}))
        root = tmp_path / "project" / "plugins" / name
        with (root / "plugin.yaml").open("a") as manifest:
            manifest.write("nodes: {entry: nodes.py}\n")
        (root / "nodes.py").write_text(NODES)
        nodes.append({"id": f"n{at}", "type": f"{name}:Add"})
        ends = {"source": f"n{at - 1}", "target": f"n{at}", "sourceHandle": "result", "targetHandle": "values"}
        edges += [{"id": f"e{at}", **ends}] if at else []
    nodes[0]["inputValues"] = {"values": {"numbers": [1.5, 2], "by": []}}
    workflow = Workflow.model_validate({"name": "w", "nodes": nodes, "edges": edges})
    async with Host(tmp_path / "project", trust=[*wanted]) as host:
        assert [one.problems for one in host.plugins() if one.name in wanted and one.problems] == []
        run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=workflow))
    assert run.error is None, run.error
    result = run.nodes["n2"].output["result"]
    by = [version.partition(".")[0] + "." + str(python) for version, python in result["by"]]
    mine, other = host_python().version.split(".")[1], minor.split(".")[1]
    assert result["numbers"] == [4.5, 5] and by == [f"1.{mine}", f"2.{mine}", f"2.{other}"]


async def test_a_review_says_what_a_plugin_requires_and_installs_nothing(tmp_path: Path, links: Path) -> None:
    plugin(tmp_path, "acme", "beta>=2", "1")
    host = Host(tmp_path / "project", trust=[])
    host.link()
    (note,) = await host.notes(host.plugin("acme"), Host(tmp_path / "project", third_party=False))
    assert (note.key, note.rows) == ("packages", [["beta>=2"]])
    assert not built(host)


async def test_what_the_operator_says_of_packages_holds(tmp_path: Path, links: Path) -> None:
    add(links, "beta")
    affected = {"package": {"ecosystem": "PyPI", "name": "beta"}, "versions": ["1.0"]}
    (tmp_path / "database.json").write_text(json.dumps({"id": "OSV-1", "affected": [affected]}))
    plugin(tmp_path, "acme", "beta", "1")
    settings = {"extensions.tavern-operations.advisoryDatabase": str(tmp_path / "database.json")}
    async with Host(tmp_path / "project", trust=["acme"], settings=settings) as host:
        assert (
            "acme: nothing is installed, since there are advisories about beta"
            in host.plugin("acme").problems[0].message
        )
    (tmp_path / "project" / "tavern.yaml").write_text(yaml.safe_dump({"name": "project", "settings": settings}))
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        assert await metadata_of(host) == {"acme": 1}, "a project says nothing of it"


async def test_a_plugin_runs_with_another_python(table: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = await another_python(table)
    for name in ("UV_FIND_LINKS", "UV_NO_INDEX"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
    plugin(tmp_path, "acme", "", "sys.version.split()[0]", python=other.version)
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        info = host.plugin("acme")
        if any("Failed to fetch" in problem.message for problem in info.problems):
            pytest.skip("needs a package index")
        assert await metadata_of(host) == {"acme": other.version}
        assert info.process is not None and info.process.python == other.version


async def test_a_lock_decides_the_versions_of_all_but_the_host(table: Bench, links: Path) -> None:
    digest = add(links, "alpha", "1.0")
    add(links, "alpha", "2.0")
    root = table.folder / "acme_notes"
    root.mkdir()
    packages = [
        f'name = "alpha"\nversion = "1.0"\nsource = {{ registry = "{links}" }}\n'
        f'wheels = [{{ path = "alpha-1.0-py3-none-any.whl", hash = "sha256:{digest}" }}]',
        f'name = "tavern-host"\nversion = "0.0.1"\nsource = {{ registry = "{links}" }}\n'
        f'wheels = [{{ path = "tavern_host-0.0.1-py3-none-any.whl", hash = "sha256:{digest}" }}]',
        'name = "acme-notes"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "alpha" }, { name = "tavern-host" }]',
    ]
    lock = "".join(f"[[package]]\n{one}\n" for one in packages)
    (root / "uv.lock").write_text(f'version = 1\nrequires-python = ">=3.9"\n{lock}')
    found = await table.requiring("alpha", "tavern-host")
    assert table.said(found, "import alpha; print(alpha.version)") == "1.0"
