"""What imports what: start-up is a feature, the kernel names no plugin, and plugins meet in the contracts alone."""

from __future__ import annotations

import ast
import re
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
DOCUMENTED = {f"tavern_host.{room}" for room in ("clock", "context", "runtime", "sdk", "storage")}
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
