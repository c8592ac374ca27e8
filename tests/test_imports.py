"""What imports what: start-up is a feature, the kernel names no plugin, and plugins meet in the contracts alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
DOCUMENTED = {f"tavern_host.{room}" for room in ("context", "runtime", "sdk", "storage")}
FOR_AUTHORS = {"tavern_host.contracts", *DOCUMENTED}

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


def tops(modules: Iterable[str]) -> set[str]:
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


class Found(NamedTuple):
    """What a file says: the modules that it imports, the names that it imports from modules, and its texts."""

    modules: frozenset[str]
    members: frozenset[tuple[str, str]]
    texts: frozenset[str]


@cache
def found_in(file: Path, package: str = "") -> Found:
    """Return what a file imports, in functions too, and its texts. Modules are not those under `if TYPE_CHECKING`.

    `from a import b` counts as `a.b` where that is a module; the literal names given to `import_module`
    and `__import__` count as well.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    every = [*ast.walk(tree)]
    froms = [node for node in every if isinstance(node, ast.ImportFrom) and node.module]
    return Found(
        frozenset(_modules(tree, package)),
        frozenset((node.module or "", alias.name) for node in froms for alias in node.names),
        frozenset(node.value for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str)),
    )


def _modules(tree: ast.Module, package: str) -> Iterator[str]:
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (_module_or_member(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


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


def files_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file below a package folder with its package."""
    for file in sorted(folder.rglob("*.py")):
        yield file, ".".join([folder.name, *file.relative_to(folder).parts[:-1]])


def test_the_reader_of_imports_sees_all_forms(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "import a.b\nfrom tavern_host import hookspecs, node\nfrom . import c\nfrom .d import e\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import never\nelse:\n    import always\n"
        "def f():\n    import inner\n    importlib.import_module('named')\n    __import__('old')\n"
    )
    assert found_in(file, "pack").modules == {
        *("a.b", "tavern_host.hookspecs", "tavern_host", "pack", "pack.d"),
        *("typing", "always", "inner", "named", "old"),
    }


def test_the_kernel_neither_imports_nor_names_first_party_plugins() -> None:
    names = {*FIRST_PARTY, *(name.replace("_", "-") for name in FIRST_PARTY)}
    with Failures() as failures:
        for file, package in files_of(KERNEL):
            with failures.row(file):
                found = found_in(file, package)
                assert tops(found.modules) & set(FIRST_PARTY) == set()
                assert {t for t in found.texts if t.partition(":")[0].partition(".")[0] in names} == set()


def test_first_party_plugins_import_only_what_authors_may() -> None:
    page = (ROOT / "docs" / "plugin-api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    def is_in(module: str, rooms: set[str]) -> bool:
        return any(module == room or module.startswith(f"{room}.") for room in rooms)

    with Failures() as failures:
        for plugin in FIRST_PARTY:
            for file, package in files_of(PLUGINS / plugin):
                with failures.row(file):
                    found = found_in(file, package)
                    assert tops(found.modules) & set(FIRST_PARTY) <= {plugin}
                    allowed = FOR_AUTHORS | ({"tavern_host.testing"} if file.name == "testing.py" else set())
                    kernel = {name for name in found.modules if name.startswith("tavern_host.")}
                    assert {name for name in kernel if not is_in(name, allowed)} == set()
                    named = {name for module, name in found.members if is_in(module, DOCUMENTED)}
                    assert named - documented == set(), "docs/plugin-api.md does not tell of them"
