"""What imports what: start-up is a feature, the kernel names no plugin, plugins meet in contracts and `api`s alone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx
import pytest
from helpers.repetition import Failures

import tavern_host

ROOT = Path(__file__).parent.parent
KERNEL = Path(tavern_host.__file__).parent
PLUGINS = ROOT / "plugins"
FIRST_PARTY = sorted(p.name for p in PLUGINS.iterdir() if (p / "plugin.yaml").is_file())
DOCUMENTED = {f"tavern_host.{room}" for room in ("clock", "common", "context", "runtime", "sdk", "storage")}
FOR_AUTHORS = {"tavern_host.contracts", *DOCUMENTED}


def tops(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_everything_in_all_can_be_imported() -> None:
    for name in tavern_host.__all__:
        assert getattr(tavern_host, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = tavern_host.Nope


# --- what stands in the files ------------------------------------------------------------------------


class Found(NamedTuple):
    """What a file says: the modules that it imports, the names that it imports from modules, and its texts."""

    modules: frozenset[str]
    members: frozenset[tuple[str, str]]
    texts: frozenset[str]


@cache
def found_in(file: Path, package: str = "") -> Found:
    """Return the imports of a file, in functions too, and its texts. Modules are not those under `if TYPE_CHECKING`.

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


AUTHORS = KERNEL / "__init__.py"
"""Names by which authors import services of first-party plugins: the one place of the kernel that knows such."""


def test_the_kernel_neither_imports_nor_names_first_party_plugins() -> None:
    names = {*FIRST_PARTY, *(name.replace("_", "-") for name in FIRST_PARTY)}
    with Failures() as failures:
        for file, package in files_of(KERNEL):
            with failures.row(file):
                found = found_in(file, package)
                assert tops(found.modules) & set(FIRST_PARTY) == set()
                named = {t for t in found.texts if t.partition(":")[0].partition(".")[0] in names}
                assert named == {t for t in named if file == AUTHORS and is_api(t)}


def is_in(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def is_api(module: str) -> bool:
    return module.split(".")[1:2] == ["api"]


def test_first_party_plugins_import_only_what_authors_may() -> None:
    page = (ROOT / "docs" / "plugin-api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    with Failures() as failures:
        for plugin in FIRST_PARTY:
            for file, package in files_of(PLUGINS / plugin):
                with failures.row(file):
                    found = found_in(file, package)
                    others = {n for n in found.modules if n.partition(".")[0] in {*FIRST_PARTY} - {plugin}}
                    assert {name for name in others if not is_api(name)} == set()
                    allowed = FOR_AUTHORS | ({"tavern_host.testing"} if file.name == "testing.py" else set())
                    kernel = {name for name in found.modules if name.startswith("tavern_host.")}
                    assert {name for name in kernel if not is_in(name, allowed)} == set()
                    named = {name for module, name in found.members if is_in(module, DOCUMENTED)}
                    assert named - documented == set(), "docs/plugin-api.md does not tell of them"


def test_nothing_pickles() -> None:
    """Values have codecs: to read bytes runs no code that they name."""
    files = [file for folder in (KERNEL, PLUGINS, ROOT / "contrib") for file in sorted(folder.rglob("*.py"))]
    found = [file for file in files if found_in(file).modules & {"cloudpickle", "dill", "pickle", "shelve"}]
    assert found == []


def test_an_api_needs_the_kernel_other_apis_and_pydantic() -> None:
    with Failures() as failures:
        for plugin in FIRST_PARTY:
            for file, package in files_of(PLUGINS / plugin / "api"):
                with failures.row(file):
                    found = found_in(file, f"{plugin}.{package}").modules
                    ours = {name for name in found if tops({name}) & {*FIRST_PARTY}}
                    assert {name for name in ours if not is_api(name)} == set()
                    # `opentelemetry` where spans are made, `regex` where patterns of people are searched, and the HTTP
                    # client of the kernel's own contract where a request is sent
                    wanted = {*FIRST_PARTY, "tavern_host", "pydantic", "opentelemetry", "regex", "aiohttp", "yarl"}
                    assert tops(found) - wanted <= sys.stdlib_module_names


def test_apis_import_each_other_downwards() -> None:
    graph = networkx.DiGraph()
    for plugin in FIRST_PARTY:
        for file, package in files_of(PLUGINS / plugin / "api"):
            others = tops(found_in(file, f"{plugin}.{package}").modules) & {*FIRST_PARTY} - {plugin}
            graph.add_edges_from((plugin, other) for other in others)
    assert list(networkx.simple_cycles(graph)) == []
    assert graph.size() > 3


# --- systems -------------------------------------------------------------------------------------------------

ONLY_SOME_SYSTEMS = re.compile(
    r"\bos\.(O_NOFOLLOW|O_DIRECTORY|O_NONBLOCK|O_CLOEXEC|O_NOCTTY|O_PATH|fchmod|l?chown|fchown|killpg|get[eg]*uid|fwalk|mkfifo|"
    r"setsid|fork|statvfs|getpgid|pidfd_open|sched_\w+)\b|\b(src_|dst_)?dir_fd=|\badd_signal_handler\b|\bos\.kill\(|"
    r"^\s*(import|from) (fcntl|resource|pwd|grp|termios|pty|tty)\b",
    re.MULTILINE,
)
NEED_LINUX = ("tavern_containers", "tavern_isolation", "tavern_scripts", "tavern_wasm")
ASKED = {
    *(KERNEL / "common" / "system.py", KERNEL / "storage" / "open_folder.py"),
    KERNEL / "storage" / "file_watch.py",  # where the system has notes of changes
    PLUGINS / "tavern_nodes" / "worker_main.py",  # a process that POSIX systems start
    PLUGINS / "tavern_tools" / "editor" / "python_signature.py",  # a limit of a process, where there are limits
}


def test_what_only_some_systems_have_is_asked_in_one_place() -> None:
    with Failures() as failures:
        for file in [*KERNEL.rglob("*.py"), *PLUGINS.rglob("*.py")]:
            if file not in ASKED and not any(plugin in file.parts for plugin in NEED_LINUX):
                with failures.row(file.relative_to(ROOT)):
                    assert not ONLY_SOME_SYSTEMS.search(file.read_text(encoding="utf-8"))
