"""What fresh processes import: start-up is a feature."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_imports import FIRST_PARTY, KERNEL, tops

import tavern_host

HEAVY = [
    "aiohttp",
    "click",
    "importlib_metadata",
    "jsonschema",
    "jsonschema_rs",
    "networkx",
    "opentelemetry",
    "pluggy",
    "pydantic",
    "rich",
    "yaml",
]

OF_PYDANTIC = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}


def run_python(code: str, *, cwd: Path, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(code: str, *, cwd: Path) -> set[str]:
    """Return the names of all modules that a fresh interpreter has after running code."""
    printed = run_python(f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))", cwd=cwd)
    return set(json.loads(printed.splitlines()[-1]))


@pytest.fixture(scope="module")
def there_from_the_start(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return modules_after("", cwd=tmp_path_factory.mktemp("empty"))


def third_party(loaded: set[str]) -> set[str]:
    """Return the modules that are neither ours, nor the standard library's, nor pydantic's."""
    names = tops(loaded) - OF_PYDANTIC - sys.stdlib_module_names - {"tavern_host"}
    return {name for name in names if "_sysconfigdata" not in name}


def test_the_version_is_printed_before_anything_is_imported(tmp_path: Path) -> None:
    code = (
        "import json, runpy, sys\nsys.argv = ['tavern', '--version']\n"
        "try:\n    runpy.run_module('tavern_host.cli', run_name='__main__')\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    printed, loaded = run_python(code, cwd=tmp_path).splitlines()
    assert printed == f"tavern-host {tavern_host.__version__}"
    assert {n for n in json.loads(loaded) if n.startswith("tavern_host")} <= {"tavern_host", "tavern_host.cli"}
    assert tops(set(json.loads(loaded))) & set(HEAVY) == set()


def test_importing_tavern_host_imports_nothing_else(tmp_path: Path, there_from_the_start: set[str]) -> None:
    loaded = modules_after("import tavern_host", cwd=tmp_path) - there_from_the_start
    assert tops(loaded) & {*HEAVY, "asyncio"} == set()


def test_what_authors_import_needs_only_pydantic(tmp_path: Path, there_from_the_start: set[str]) -> None:
    names = ", ".join(sorted(tavern_host.__all__))
    loaded = modules_after(f"from tavern_host import {names}", cwd=tmp_path)
    assert third_party(loaded - there_from_the_start) <= {*FIRST_PARTY}, "the keys of services are of these"
    assert "tavern_host.host" not in loaded


def test_the_contracts_need_only_pydantic(tmp_path: Path, there_from_the_start: set[str]) -> None:
    files = sorted(p.stem for p in (KERNEL / "contracts").glob("*.py") if p.stem != "__init__")
    code = "\n".join(f"import tavern_host.contracts.{name}" for name in files)
    loaded = modules_after(code, cwd=tmp_path)
    assert third_party(loaded - there_from_the_start) == set()
    assert {n for n in loaded if n.startswith("tavern_host.")} <= {
        "tavern_host.clock",
        "tavern_host.contracts",
        *(f"tavern_host.contracts.{name}" for name in files),
    }


def test_a_host_that_links_imports_no_plugin(tmp_path: Path) -> None:
    loaded = modules_after("from tavern_host import Host\nHost().link()", cwd=tmp_path)
    assert tops(loaded) & set(FIRST_PARTY) == set()
    assert tops(loaded) & {"aiohttp", "click", "jsonschema", "networkx", "rich"} == set()


def test_what_is_not_set_up_is_not_imported(tmp_path: Path) -> None:
    """Of a cluster, a shared database and MCP servers a host that serves imports what offers them, and no more."""
    code = """
import asyncio
from pathlib import Path
from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, Host
from tavern_host.contracts.executions import RunRequest

async def main():
    async with Host(Path("inn"), serving=True) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        upper = {"id": "a", "type": "core:UpperCase", "inputValues": {"text": "ale"}}
        run = await engine.run(RunRequest(workflow={"id": "w", "nodes": [upper], "edges": []}))
        assert run.status == "complete", run
        await host.services.get(TOOL_MANAGER).list_tools()

asyncio.run(main())"""
    loaded = modules_after(code, cwd=tmp_path)
    ours = {"tavern_dask", "tavern_postgres", "tavern_mcp"}
    assert tops(loaded) & {"dask", "distributed", "mcp", "psycopg", "psycopg_pool"} == set()
    assert {name for name in loaded if name.partition(".")[0] in ours} == ours
    assert {name for name in loaded if name.startswith("tavern_engine.run.remote")} == set()


def test_a_start_imports_no_contract_of_a_service(tmp_path: Path) -> None:
    """The contracts of hooks are imported, since hooks are called; those of services, once somebody uses them."""
    code = """
import asyncio, json, sys
from pathlib import Path
from tavern_host import Host

async def main():
    async with Host(Path("inn")):
        print(json.dumps([*sys.modules]))

asyncio.run(main())"""
    loaded = {name for name in json.loads(run_python(code, cwd=tmp_path)) if ".api." in name}
    loaded = {name for name in loaded if name.startswith("tavern_")}
    assert {name.partition(".")[0] for name in loaded} == {
        "tavern_devtools",
        "tavern_importers",
        "tavern_llm",
        "tavern_scripts",
        "tavern_tools",
        "tavern_triggers",
    }
    services = {"tavern_tools.api.tools", "tavern_tools.api.toolfiles", "tavern_tools.api.systemtools"}
    assert loaded & {*services, "tavern_triggers.api.triggers", "tavern_devtools.api.checks"} == set()


def test_a_warm_server_has_what_its_routes_name(tmp_path: Path) -> None:
    """Everything can be prepared, and needs nothing of what is not set up."""
    code = """
import asyncio, json, logging, sys
from pathlib import Path
from tavern_host import Host
from tavern_operations.warming import references, warm_up

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")

async def main():
    async with Host(Path("inn")) as host:
        routes = [*host.registrations.routes.values()]
        await warm_up([routes])
        print(json.dumps([[*sys.modules], references(one.info for one in routes)]))

asyncio.run(main())"""
    *said, found = run_python(code, cwd=tmp_path).splitlines()
    loaded, named = json.loads(found)
    assert [line for line in said if "not prepared" in line] == []
    assert {name.partition(":")[0] for name in named} <= {*loaded}
    assert len(named) > 100
    assert tops(loaded) & {"dask", "distributed", "mcp", "psycopg", "psycopg_pool", "wasmtime"} == set()


def test_listing_and_showing_plugins_imports_none(tmp_path: Path) -> None:
    code = (
        "from tavern_host.cli.terminal import run\n"
        "assert run(['plugins', 'list']) == run(['plugins', 'show', 'tavern-engine']) == 0"
    )
    loaded = modules_after(code, cwd=tmp_path)
    assert tops(loaded) & set(FIRST_PARTY) == set()
    assert "aiohttp" not in loaded


def test_help_makes_no_host_where_no_other_plugin_is(tmp_path: Path) -> None:
    (tmp_path / "tavern.yaml").write_text("name: inn\n")
    for words in (["--help"], ["plugins", "--help"], ["workflow", "run", "--help"]):
        loaded = modules_after(f"from tavern_host.cli.terminal import run\nassert run({words}) == 0", cwd=tmp_path)
        unneeded = {"tavern_host.host", "tavern_host.contracts.manifest", "tavern_host.contracts.workflows"}
        assert loaded & {*unneeded, "tavern_llm.api.llm", "tavern_scripts.api.scripts"} == set()


def test_plugins_of_pydantic_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "acme_seen.py").write_text("print('imported')\nraise ImportError\n")
    (tmp_path / "acme-1.dist-info").mkdir()
    (tmp_path / "acme-1.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1\n")
    (tmp_path / "acme-1.dist-info" / "entry_points.txt").write_text("[pydantic]\nacme = acme_seen:plugin\n")
    code = "import sys\nsys.argv = ['tavern', '--help']\nfrom tavern_host.cli import main\nmain()"
    assert "imported" not in run_python(code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    plain = "class M(__import__('pydantic').BaseModel): pass"
    assert "imported" in run_python(plain, cwd=tmp_path, PYTHONPATH=str(tmp_path)), "else it would show nothing"
