"""`python -m tests.house`: counts the code and follows its imports, and says which limits do not hold.

A line of code is one that holds a token which is neither a comment nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "tavern_host"
PRODUCT = (KERNEL, ROOT / "plugins", ROOT / "contrib")

CORE = ("plugins", "hooks", "services", "hookspecs.py", "host.py")
"""What a newcomer reads in one sitting."""
MOST = {"core": 4_040, "kernel": 17_060, "contracts": 2_615, "file": 450, "function": 60}
"""Lines of code of the core, of the kernel with its contracts, and of these; all lines of one product file, and lines
of one function from its `def` to its end, without its docstring, blank lines and comments. Decisions 25, 140, 146,
150, 157, 166, 169, 181, 188, 194 and 196 say why the kernel's is what it is."""
CONTRACT_FILES = 28
"""How many files the contracts of the kernel are at most."""

PLUGINS = {
    "a2a": 620, "accounts": 1_260, "agents": 6_950, "assistant": 2_300, "characters": 1_430, "containers": 500,
    "dask": 950, "devtools": 2_260, "engine": 10_700, "importers": 950, "isolation": 4_000, "knowledge": 3_530,
    "llm": 4_000, "mcp": 2_420, "nodes": 5_830, "openai": 1_150, "operations": 2_640, "packages": 1_140,
    "panels": 1_250, "postgres": 900, "scripts": 10_650, "tam": 2_040, "tools": 11_700, "triggers": 1_870,
    "wasm": 450, "workflows": 4_550, "worlds": 1_250,
}  # fmt: skip
"""Lines of code of first-party plugins, each with its `api`, as decisions 102, 164, 173 to 176, 178, 181, 182,
187, 188, 192, 193, 195, 197 and 202 say."""

TESTS = 0.85
"""How many lines of code the tests have at most for each of the product's in Python, as decisions 100 and 104 say."""

ROOMS: tuple[tuple[str, ...], ...] = (
    ("cli", "server", "testing", "__init__"),
    ("host",),
    ("projects",),
    ("plugins",),
    ("context.facilities",),
    ("services",),
    ("hooks",),
    ("hookspecs",),
    ("settings", "events", "audit", "sdk"),
    ("runtime",),
    ("storage",),
    ("context",),
    ("common",),
    ("contracts",),
    ("clock",),
)
"""The rooms of the kernel, the highest first. A module imports from its own row and from lower ones only, type checking
included. `__init__` gives authors what they import; modules of `sdk` are opened by name where nodes run."""

OTHER_CLOCKS = (
    "tavern_host/clock.py",
    # They run in other processes than the host.
    *("plugins/tavern_dask/worker.py", "plugins/tavern_nodes/worker_main.py", "plugins/tavern_scripts/runners"),
    *("plugins/tavern_scripts/network/relay.py", "plugins/tavern_scripts/sandbox/inner.py"),
    "plugins/tavern_scripts/sandbox/canary_program.py",
    "plugins/tavern_wasm/runner.py",
    # Threads in them really wait or compute.
    *(
        "plugins/tavern_nodes/api/patterns.py",
        "plugins/tavern_operations/backup.py",
        "tavern_host/storage/open_folder.py",
    ),
)
"""Files and folders that may ask the machine for the time; all others ask `tavern_host.clock`, which tests hold."""


# --- counting ---------------------------------------------------------------------------------------------


@cache
def code_lines(file: Path) -> frozenset[int]:
    """Return the numbers of a file's lines of code."""
    text = file.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for part in ast.walk(ast.parse(text)):
        if isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and part.body:
            first = part.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    layout = {*(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    return frozenset(lines - docstrings)


def python_files(folders: Iterable[Path]) -> list[Path]:
    """Return the Python files in these folders, and those among them that are files."""
    found = [file for one in folders for file in ([one] if one.is_file() else sorted(one.rglob("*.py")))]
    return [file for file in found if not {"node_modules", ".venv"} & set(file.parts)]


def size(folders: Iterable[Path]) -> int:
    """Return the lines of code in these folders."""
    return sum(len(code_lines(file)) for file in python_files(folders))


def long_functions(file: Path) -> Iterator[str]:
    """Yield the functions of a file that are too long, each with its lines of code."""
    for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = len(code_lines(file) & set(range(part.lineno, (part.end_lineno or part.lineno) + 1)))
            if lines > MOST["function"]:
                yield f"{file.relative_to(ROOT)}:{part.lineno} {part.name} has {lines} lines"


def too_large() -> dict[str, list[str]]:
    """Return for the core, the kernel, the first-party plugins and the tests what is wrong with their size: lines of
    code, or files."""
    tests = size([ROOT / "tests"])
    sizes = {
        "core": (size(KERNEL / part for part in CORE), MOST["core"]),
        "kernel": (size([KERNEL]), MOST["kernel"]),
        "contracts": (size([KERNEL / "contracts"]), MOST["contracts"]),
        "contract files": (len(python_files([KERNEL / "contracts"])), CONTRACT_FILES),
        "tests": (tests, int((size(PRODUCT) - size(ROOT.glob("contrib/*/tests"))) * TESTS)),
    }
    sizes |= {f"tavern_{name}": (size([ROOT / "plugins" / f"tavern_{name}"]), most) for name, most in PLUGINS.items()}
    return {name: [f"{lines}, at most {most}"] if lines > most else [] for name, (lines, most) in sizes.items()}


def long_files() -> Iterator[str]:
    """Yield the product files that are too long."""
    for file in python_files(PRODUCT):
        if "tests" not in file.parts and (lines := file.read_bytes().count(b"\n")) > MOST["file"]:
            yield f"{file.relative_to(ROOT)}: {lines} lines, at most {MOST['file']}"


def all_long_functions() -> Iterator[str]:
    """Yield the functions of the product that are too long."""
    for file in python_files(PRODUCT):
        if "tests" not in file.parts:
            yield from long_functions(file)


def shared_names() -> Iterator[str]:
    """Yield the test files that have the name of another: by that pytest imports them, and finds one only."""
    found: dict[str, list[Path]] = {}
    for file in python_files([ROOT / "tests", *ROOT.glob("contrib/*/tests")]):
        if file.name.startswith("test_"):
            found.setdefault(file.name, []).append(file.relative_to(ROOT))
    yield from (" and ".join(map(str, files)) for files in found.values() if len(files) > 1)


# --- imports ----------------------------------------------------------------------------------------------


def modules(package: Path) -> dict[str, Path]:
    """Return the files of a package by the name of the module."""
    found = {}
    for file in python_files([package]):
        parts = [package.name, *file.relative_to(package).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path, known: Iterable[str]) -> set[str]:
    """Return which of the known modules a file imports, in functions and for type checking too."""
    known = set(known)
    found: set[str] = set()
    for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(part, ast.Import):
            found.update(alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module and not part.level:
            members = {f"{part.module}.{alias.name}" for alias in part.names}
            found |= members & known or {part.module}
    return found & known


def circles(graph: dict[str, set[str]]) -> Iterator[str]:
    """Yield one way around each group of modules that import each other in a circle."""
    import networkx

    directed = networkx.DiGraph({name: sorted(others) for name, others in graph.items()})
    for group in networkx.strongly_connected_components(directed):
        if len(group) > 1:
            yield "a circle of imports: " + " → ".join(
                edge[0] for edge in networkx.find_cycle(directed.subgraph(group))
            )


def room_of(module: str) -> int:
    """Return the row of `ROOMS` that a module of the kernel stands in; a longer name counts before its package."""
    inner = module.partition(".")[2] or "__init__"
    rows = {room: row for row, rooms in enumerate(ROOMS) for room in rooms}
    while inner not in rows:
        if "." not in inner:
            raise LookupError(f"{module} stands in no room: add it to ROOMS in tests/house.py")
        inner = inner.rpartition(".")[0]
    return rows[inner]


def upward_imports(graph: dict[str, set[str]]) -> Iterator[str]:
    """Yield the imports of the kernel that lead into a higher row of rooms."""
    for module, others in sorted(graph.items()):
        for other in sorted(others - {"tavern_host"}):
            if room_of(other) < room_of(module):
                yield f"{module} imports {other}, which stands in a higher room"


def kernel_graph() -> dict[str, set[str]]:
    """Return the imports of each module of the kernel from the kernel."""
    known = modules(KERNEL)
    return {name: imports(file, known) - {name} for name, file in known.items()}


def all_circles() -> Iterator[str]:
    """Yield the circles of imports within the kernel and within each plugin."""
    for package in (KERNEL, *sorted(path for path in (ROOT / "plugins").iterdir() if (path / "plugin.yaml").is_file())):
        known = modules(package)
        runtime = {name: imports(file, known) - {name, package.name} for name, file in known.items()}
        yield from circles(runtime)


# --- the clock --------------------------------------------------------------------------------------------

_MACHINE = re.compile(r"time\.(monotonic|time|time_ns)|(datetime\.)?datetime\.(now|utcnow)")


def asks_machine(file: Path) -> Iterator[str]:
    """Yield where a file asks the machine for the time, or has what does."""
    for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        named = [ast.unparse(part)] if isinstance(part, ast.Attribute) else []
        if isinstance(part, ast.ImportFrom) and part.module == "time":
            named = [f"time.{alias.name}" for alias in part.names]
        for name in filter(_MACHINE.fullmatch, named):
            yield f"{file.relative_to(ROOT)}:{part.lineno} has {name}: ask tavern_host.clock"


def all_that_ask_the_machine() -> Iterator[str]:
    """Yield where the product asks the machine for the time and not its clock."""
    others = {ROOT / name for name in OTHER_CLOCKS}
    for file in python_files(PRODUCT):
        if "tests" not in file.parts and not others & {file, *file.parents}:
            yield from asks_machine(file)


# --- the fast lane ----------------------------------------------------------------------------------------

_TIMING = re.compile(
    r"(\w*_)?(DEADLINE|SECONDS|GRACE|PATIENCE|RETRY|TRIES|DELAY|INTERVAL|EVERY|LEASE|HEARTBEAT)(_\w*)?|LIMIT"
)
"""What constants of the product are called that say how long something takes."""


def fast_files() -> list[Path]:
    """Return the files of the fast tests and of what they share with others."""
    found = python_files([ROOT / "tests", *ROOT.glob("contrib/*/tests")])
    return [file for file in found if not {"real", "documentation"} & {*file.relative_to(ROOT).parts}]


def sleeps(file: Path) -> Iterator[str]:
    """Yield where a fast test sleeps. Plugins of tests may wait for time that is held, but not for the machine's."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for call in [part for part in ast.walk(tree) if isinstance(part, ast.Call)]:
        name = ast.unparse(call.func)
        is_nothing = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        if name == "time.sleep" or (name == "asyncio.sleep" and not is_nothing and "plugins" not in file.parts):
            yield f"{file.relative_to(ROOT)}:{call.lineno} sleeps: hold the time, or wait for what happens"


def private_assignments(file: Path) -> Iterator[str]:
    """Yield where a fast test assigns to a private name, or to how long the product takes for something."""
    for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "setattr":
            named = [one.value for one in part.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            names = named[-1].split(".") if named else []
        elif isinstance(part, ast.Assign):
            targets = [one for target in part.targets for one in getattr(target, "elts", [target])]
            names = [
                one.attr
                for one in targets
                if isinstance(one, ast.Attribute) and ast.unparse(one.value) not in ("self", "cls")
            ]
        for name in names:
            if (name.startswith("_") and not name.startswith("__")) or (name.isupper() and _TIMING.fullmatch(name)):
                where = f"{file.relative_to(ROOT)}:{getattr(part, 'lineno', 0)}"
                yield f"{where} assigns to {name}: let its time pass, or give the product a parameter"


def lane_faults() -> Iterator[str]:
    """Yield what the fast lane has that it may not have."""
    for file in fast_files():
        if file != ROOT / "tests" / "helpers" / "waiting.py":
            yield from sleeps(file)
        yield from private_assignments(file)


def faults() -> dict[str, list[str]]:
    """Return the faults of the code, by limit."""
    return {
        **too_large(),
        "files": [*long_files()],
        "functions": [*all_long_functions()],
        "names": [*shared_names()],
        "circles": [*all_circles()],
        "rooms": [*upward_imports(kernel_graph())],
        "fast": [*lane_faults()],
        "clock": [*all_that_ask_the_machine()],
    }


def main() -> int:
    """Print every fault, and return 1 where a limit does not hold."""
    found = faults()
    for name, lines in found.items():
        print(f"{name}: {'not in order' if lines else 'in order'}")
        for line in lines:
            print(f"  {line}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
