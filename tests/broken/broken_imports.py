"""Broken plugins whose code cannot be imported, or does harm while it is."""

from __future__ import annotations

from typing import Any

from broken_plugins import Corpus, Says
from inn import HEAD, HERE, TELLS

from tavern_host.contracts.plugins import PluginState

CORPUS = Corpus()
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED


def code(name: str, text: str, reason: str, mend: str = "", *, threads: tuple[str, ...] = (), **plugin: Any) -> None:
    """Add a plugin whose code fails; what every such plugin is told is how to do without it."""
    mend = mend or f"tavern plugins disable {name}"
    file = plugin.pop("file", "__init__.py")
    says = Says(name, FAILED, reason, mend, file)
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, **plugin), says, threads=threads)


# --- Python that is none -----------------------------------------------------------------------------

code("import-syntax", f"\nif True print('x')  {HERE}\n", "SyntaxError: ")
CORPUS.add(
    "import-encoding",
    lambda inn: inn.code("import-encoding", "# coding: klingon\nx = 1\n"),
    Says("import-encoding", FAILED, "unknown encoding", "tavern plugins disable import-encoding", "__init__.py"),
)

# --- what it imports is not there --------------------------------------------------------------------

code("import-gone", f"import a_library_that_is_not_there  {HERE}\n", "'a_library_that_is_not_there'")
code(
    "import-circle",
    "from . import one\n",
    "cannot import name 'x'",
    files={"one.py": f"{TELLS}from .two import x  {HERE}\n", "two.py": f"{TELLS}from .one import x\n"},
    file="two.py",
)
code(
    "import-within",
    "from .part import x\n",
    "Expecting value",
    files={"part.py": f"{TELLS}import json\nx = json.loads('nonsense')  {HERE}\n"},
    file="part.py",
)

# --- what ends the program ---------------------------------------------------------------------------

ENDS = "tried to end the program"

code("import-exit", f"sys.exit()  {HERE}\n", f"{ENDS} (SystemExit)")
code("import-interrupt", f"raise KeyboardInterrupt  {HERE}\n", f"{ENDS} (KeyboardInterrupt)")
code("import-cancel", f"raise asyncio.CancelledError  {HERE}\n", f"{ENDS} (CancelledError)")

# --- what raises in every way ------------------------------------------------------------------------

code("import-stop-iteration", f"next(iter([]))  {HERE}\n", "StopIteration")
code("import-recursion", f"def f(n): return f(n + 1)  {HERE}\nf(0)\n", "RecursionError: maximum recursion depth")
code("import-memory", f"raise MemoryError  {HERE}\n", "MemoryError")
code(
    "import-unspeakable-exit",
    f"class Odd(Exception):\n    def __str__(self): sys.exit(1)\nraise Odd  {HERE}\n",
    "Odd: (its text cannot be shown)",
)
code(
    "import-endless-repr",
    f"class Odd:\n    def __repr__(self): return repr(self)\nraise KeyError(Odd())  {HERE}\n",
    "KeyError: (its text cannot be shown)",
)
code(
    "import-huge-text",
    f"raise RuntimeError('no ' * 1_000_000)  {HERE}\n",
    "RuntimeError: no no no",
)

# --- what does not end -------------------------------------------------------------------------------

code(
    "import-hangs",
    "sys.release.wait(60)\n",
    "importing import-hangs did not end within",
    threads=("importing import-hangs",),
    file=None,
)

# --- what it does to the process, which goes on ------------------------------------------------------

CORPUS.add(
    "takes-the-output",
    lambda inn: inn.code("takes-the-output", f"{HEAD}sys.stdout = sys.stderr = None\n"),
    Says("takes-the-output", STARTED),
)
CORPUS.add(
    "replaces-itself",
    lambda inn: inn.code("replaces-itself", f"{HEAD}sys.modules[__name__] = 5\n"),
    Says("replaces-itself", STARTED),
)
CORPUS.add(
    "shy-object",
    lambda inn: inn.code(
        "shy-object",
        f"{HEAD}class Shy:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nthing = Shy()\n",
    ),
    Says("shy-object", STARTED),
)
CORPUS.add(
    "exiting-object",
    lambda inn: inn.code(
        "exiting-object",
        f"{HEAD}class Odd:\n    @property\n    def tavern_impl(self): sys.exit(1)\nthing = Odd()\n",
    ),
    Says("exiting-object", STARTED),
)
