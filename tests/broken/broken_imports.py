"""Broken plugins whose code cannot be imported, or does harm while it is."""

from __future__ import annotations

from typing import Any

from base_project import HERE, TELLS
from broken_plugins import FAILED, LATE, STARTED, Corpus, Says

CORPUS = Corpus()


def code(name: str, text: str, reason: str, **plugin: Any) -> None:
    """Add a plugin whose code fails."""
    CORPUS.code(name, text, FAILED, reason, **{"file": "__init__.py"} | plugin)


# --- Python that is none, and what it imports is not there -------------------------------------------

code("import-syntax", f"\nif True print('x')  {HERE}\n", "SyntaxError: ")
CORPUS.add(
    "import-encoding",
    lambda inn: inn.code("import-encoding", "# coding: klingon\nx = 1\n"),
    Says("import-encoding", FAILED, "unknown encoding", "tavern plugins disable import-encoding", "__init__.py"),
)
code("import-gone", f"import a_library_that_is_not_there  {HERE}\n", "'a_library_that_is_not_there'")
CIRCLE = {"one.py": f"{TELLS}from .two import x  {HERE}\n", "two.py": f"{TELLS}from .one import x\n"}
code("import-circle", "from . import one\n", "cannot import name 'x'", file="two.py", files=CIRCLE)
PART = {"part.py": f"{TELLS}import json\nx = json.loads('nonsense')  {HERE}\n"}
code("import-within", "from .part import x\n", "Expecting value", file="part.py", files=PART)

# --- what ends the program, raises in every way, does not end ----------------------------------------

ENDS = "tried to end the program"
code("import-exit", f"sys.exit()  {HERE}\n", f"{ENDS} (SystemExit)")
code("import-interrupt", f"raise KeyboardInterrupt  {HERE}\n", f"{ENDS} (KeyboardInterrupt)")
code("import-cancel", f"raise asyncio.CancelledError  {HERE}\n", f"{ENDS} (CancelledError)")
code("import-stop-iteration", f"next(iter([]))  {HERE}\n", "StopIteration")
code("import-recursion", f"def f(n): return f(n + 1)  {HERE}\nf(0)\n", "RecursionError: maximum recursion depth")
UNSPEAKABLE = "class Odd(Exception):\n    def __str__(self): sys.exit(1)\nraise Odd"
code("import-unspeakable-exit", f"{UNSPEAKABLE}  {HERE}\n", "Odd: (its text cannot be shown)")
ENDLESS = "class Odd:\n    def __repr__(self): return repr(self)\nraise KeyError(Odd())"
code("import-endless-repr", f"{ENDLESS}  {HERE}\n", "KeyError: (its text cannot be shown)")
code("import-huge-text", f"raise RuntimeError('no ' * 100_000)  {HERE}\n", "RuntimeError: no no no")
code("import-hangs", "sys.hang()\n", f"importing import-hangs{LATE}", file="")

# --- what it does to the process, which goes on ------------------------------------------------------

for name, text in {
    "takes-the-output": "sys.stdout = sys.stderr = None",
    "replaces-itself": "sys.modules[__name__] = 5",
    "shy-object": "class Shy:\n    def __getattr__(self, name): raise RuntimeError(name)\nthing = Shy()",
    "exiting-object": "class Odd:\n    @property\n    def tavern_impl(self): sys.exit(1)\nthing = Odd()",
}.items():
    CORPUS.code(name, f"{text}\n", STARTED)
