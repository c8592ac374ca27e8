"""What imports what: start-up is a feature, the kernel names no plugin, and plugins meet in the contracts alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers.repetition import Failures

import tavern_host

ROOT = Path(__file__).parent.parent
KERNEL = Path(tavern_host.__file__).parent
PLUGINS = ROOT / "plugins"
FIRST_PARTY = sorted(p.name for p in PLUGINS.iterdir() if (p / "plugin.yaml").is_file())

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
FOR_AUTHORS = {f"tavern_host.{room}" for room in ("context", "contracts", "runtime", "sdk", "storage")}

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


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def third_party(loaded: set[str]) -> set[str]:
    """Return what is neither ours, nor the standard library's, nor pydantic's."""
    names = tops(loaded) - OF_PYDANTIC - sys.stdlib_module_names - {"tavern_host"}
    return {name for name in names if "_sysconfigdata" not in name}


# --- a fresh process ---------------------------------------------------------------------------------


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
    names = ", ".join(sorted(set(tavern_host.__all__) - {"Folders", "Host"}))
    loaded = modules_after(f"from tavern_host import {names}", cwd=tmp_path)
    assert third_party(loaded - there_from_the_start) == set()
    assert "tavern_host.host" not in loaded


def test_the_contracts_need_only_pydantic(tmp_path: Path, there_from_the_start: set[str]) -> None:
    files = sorted(p.stem for p in (KERNEL / "contracts").glob("*.py") if p.stem != "__init__")
    code = "\n".join(f"import tavern_host.contracts.{name}" for name in files)
    loaded = modules_after(code, cwd=tmp_path)
    assert third_party(loaded - there_from_the_start) == set()
    assert {n for n in loaded if n.startswith("tavern_host.")} <= {
        "tavern_host.contracts",
        *(f"tavern_host.contracts.{name}" for name in files),
    }


def test_everything_in_all_can_be_imported() -> None:
    for name in tavern_host.__all__:
        assert getattr(tavern_host, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = tavern_host.Nope


def test_a_host_that_links_imports_no_plugin(tmp_path: Path) -> None:
    loaded = modules_after("from tavern_host import Host\nHost().link()", cwd=tmp_path)
    assert tops(loaded) & set(FIRST_PARTY) == set()
    assert tops(loaded) & {"aiohttp", "click", "jsonschema", "networkx", "rich"} == set()


def test_listing_and_showing_plugins_imports_none(tmp_path: Path) -> None:
    code = (
        "from tavern_host.cli.terminal import run\n"
        "assert run(['plugins', 'list']) == run(['plugins', 'show', 'tavern-engine']) == 0"
    )
    loaded = modules_after(code, cwd=tmp_path)
    assert tops(loaded) & set(FIRST_PARTY) == set()
    assert "aiohttp" not in loaded


# --- what stands in the files ------------------------------------------------------------------------


@cache
def imports_of(file: Path, package: str) -> frozenset[str]:
    """Return what a file imports, in functions too, but not under `if TYPE_CHECKING`.

    `from a import b` counts as `a.b` where that is a module; the literal names given to `import_module`
    and `__import__` count as well.
    """
    found: set[str] = set()
    for node in _executed(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.update(_module_or_member(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.add(node.args[0].value)
    return frozenset(found)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from _executed(other)
            continue
        yield node
        yield from _executed(node)


def _module_or_member(module: str, name: str) -> str:
    for root in (ROOT, PLUGINS):
        path = root.joinpath(*module.split("."), name)
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return f"{module}.{name}"
    return module


def modules_in(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return each module below a package folder with its file and its package."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = [folder.name, *file.relative_to(folder).with_suffix("").parts]
        package = parts[:-1]
        found[".".join(package if parts[-1] == "__init__" else parts)] = (file, ".".join(package))
    return found


def test_the_reader_of_imports_sees_all_forms(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "import a.b\nfrom tavern_host import hookspecs, node\nfrom . import c\nfrom .d import e\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import never\nelse:\n    import always\n"
        "def f():\n    import inner\n    importlib.import_module('named')\n    __import__('old')\n"
    )
    assert imports_of(file, "pack") == {
        *("a.b", "tavern_host.hookspecs", "tavern_host", "pack", "pack.d"),
        *("typing", "always", "inner", "named", "old"),
    }


def test_the_kernel_neither_imports_nor_names_first_party_plugins() -> None:
    names = {*FIRST_PARTY, *(name.replace("_", "-") for name in FIRST_PARTY)}
    with Failures() as failures:
        for module, (file, package) in modules_in(KERNEL).items():
            with failures.row(module):
                assert tops(set(imports_of(file, package))) & set(FIRST_PARTY) == set()
                tree = ast.parse(file.read_text(encoding="utf-8"))
                texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
                assert {t for t in texts if t.partition(":")[0].partition(".")[0] in names} == set()


def test_the_contracts_import_nothing_of_the_kernel_but_contracts() -> None:
    for module, (file, package) in modules_in(KERNEL).items():
        if module.startswith("tavern_host.contracts"):
            kernel = {i for i in imports_of(file, package) if tops({i}) == {"tavern_host"}}
            assert {i for i in kernel if not i.startswith("tavern_host.contracts")} == set(), module


def test_first_party_plugins_import_only_what_authors_may() -> None:
    used: set[tuple[str, str]] = set()
    for plugin in FIRST_PARTY:
        for file, package in modules_in(PLUGINS / plugin).values():
            for name in imports_of(file, package):
                top = name.partition(".")[0]
                assert top == plugin or top not in FIRST_PARTY, f"{file}: {name}"
                rooms = FOR_AUTHORS | ({"tavern_host.testing"} if file.name == "testing.py" else set())
                allowed = any(name == room or name.startswith(f"{room}.") for room in rooms)
                if top == "tavern_host" and name != top and not allowed:
                    used.add((plugin, name))
    assert used == set()


def test_what_first_party_plugins_import_is_documented_for_authors() -> None:
    rooms = FOR_AUTHORS - {"tavern_host.contracts"}
    page = (ROOT / "docs" / "plugin-api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    missing = set()
    for file in sorted(PLUGINS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) and node.module else ""
            if any(module == room or module.startswith(f"{room}.") for room in rooms):
                missing |= {(module, alias.name) for alias in node.names if alias.name not in documented}
    assert missing == set()


def test_nothing_in_the_kernel_imports_in_a_circle() -> None:
    modules = modules_in(KERNEL)
    graph = {name: {i for i in imports_of(*modules[name]) if i in modules and i != name} for name in modules}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
