"""Which programs run scripts: languages by suffix, the commands of tools, and the interpreters of this machine.

Runs interpreters only to ask them for their version and where they lie.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import LANGUAGE_SUFFIXES, RunnableLanguage, ScriptErrorType, ScriptLanguage
from tavern_scripts.results.refusal import Refused

CODE_NAMES: Mapping[RunnableLanguage, str] = {"python": "main.py", "nodejs": "main.mjs", "bun": "main.ts"}
"""What a file is called that is made of code."""

_PROGRAMS: Mapping[str, RunnableLanguage] = {
    "python": "python",
    "python3": "python",
    "node": "nodejs",
    "nodejs": "nodejs",
    "bun": "bun",
    "wasmtime": "wasm",
}
_NAMES: Mapping[ScriptLanguage, str] = {"python": "python3", "nodejs": "node", "bun": "bun"}
_SHELL = re.compile(r"[;&|<>`$\\\n\r\0]")
_LONGEST = 4000
_ASKING = 20.0
_ABOUT_PYTHON = """
import json, sys
print(json.dumps([sys.version.split()[0], getattr(sys, "_base_executable", sys.executable)]))
"""


@dataclass(frozen=True)
class Command:
    """A tool's command, taken apart: which language, which script, and with which arguments."""

    language: RunnableLanguage
    script: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interpreter:
    """A program that runs scripts: one of this machine, or one `inside` of the sandbox. It has no name where scripts
    are programs themselves."""

    language: RunnableLanguage
    program: str
    version: str
    inside: bool = False

    @property
    def place(self) -> str:
        """The folder that it is installed in."""
        return str(PurePosixPath(self.program).parent.parent)

    @property
    def address_space(self) -> bool:
        """Whether memory can be limited by what is reserved: engines of JavaScript reserve far more than they use."""
        return self.language == "python"

    @property
    def reads_types(self) -> bool:
        """Whether it runs TypeScript: Bun does, and Node.js since 22.18 and 23.6, which take the types away."""
        if self.language != "nodejs":
            return self.language == "bun"
        version = tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])
        return version >= (22, 18) and not (23, 0) <= version < (23, 6)

    def argv(self, memory: int, program: str | None = None) -> list[str]:
        """Return how it is started, up to the script; `memory` is in bytes. `program` is another one to be started in
        its place, that of an environment."""
        program = program or self.program
        if not program:
            return []
        if self.language == "python":
            return [program, "-s", "-B", "-X", "utf8"]
        if self.language == "nodejs":
            return [program, f"--max-old-space-size={max(16, memory * 3 // 4 >> 20)}"]
        return [program, "run", "--no-install"]


def is_typed(name: str) -> bool:
    """Return whether a file of this name holds TypeScript."""
    return name.lower().endswith((".ts", ".mts", ".cts"))


def language_of(path: str) -> RunnableLanguage:
    """Return the language of a script by the end of its name. Raises `InvalidInput`."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in LANGUAGE_SUFFIXES:
        known = ", ".join(LANGUAGE_SUFFIXES)
        raise InvalidInput(f"the language of {path!r:.200} is not clear: say it, or end its name with one of {known}")
    return LANGUAGE_SUFFIXES[suffix]


def read_command(text: str) -> Command:
    """Return the parts of a command such as `python scripts/x.py --fast`; no shell reads it. Raises `InvalidInput`."""
    if len(text) > _LONGEST:
        raise InvalidInput(f"the command has {len(text):,} characters; at most {_LONGEST:,} are possible")
    found = _SHELL.search(text)
    if found is not None:
        raise InvalidInput(
            f"the command {text!r:.200} holds {found[0]!r}, which only means something to a shell, and none is used; "
            "name an interpreter, a script and plain arguments"
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"the command {text!r:.200} cannot be taken apart: {error}") from None
    program, rest = (words[0], words[1:]) if words else ("", [])
    language = _PROGRAMS.get(program)
    if language is None:
        known = ", ".join(_PROGRAMS)
        raise InvalidInput(f"the command {text!r:.200} must begin with one of {known}, found {program!r:.80}")
    if language in ("bun", "wasm") and rest[:1] == ["run"]:
        rest = rest[1:]
    if not rest:
        raise InvalidInput(f"the command {text!r:.200} names no script")
    if rest[0].startswith("-"):
        raise InvalidInput(f"the command {text!r:.200}: after {program} comes the script, found {rest[0]!r:.80}")
    return Command(language, rest[0], tuple(rest[1:]))


class Interpreters:
    """The interpreters of this machine, each of which is looked for once, and those that a sandbox has instead."""

    def __init__(self, inside: Callable[[RunnableLanguage], Awaitable[str | None]] | None = None) -> None:
        """`inside` returns what the sandbox in force runs a language by, None for a program of this machine."""
        self._inside = inside
        self._known: dict[tuple[RunnableLanguage, str | None], Interpreter] = {}
        self._asking = asyncio.Lock()

    async def find(self, language: RunnableLanguage, configured: str | None = None) -> Interpreter:
        """Return the interpreter of a language: that of the sandbox, else the one at the path `configured`, else the
        machine's.

        Raises `Refused` where there is none.
        """
        program = await self._inside(language) if self._inside is not None else None
        if program is not None or language == "wasm":
            return Interpreter(language, program or "", "", inside=True)
        key = (language, configured)
        async with self._asking:
            if key not in self._known:
                self._known[key] = await _look_for(language, configured)
            return self._known[key]


async def _look_for(language: ScriptLanguage, configured: str | None) -> Interpreter:
    program = configured or (sys.executable if language == "python" else shutil.which(_NAMES[language]))
    if not program or not os.access(program, os.X_OK):
        where = f"at {configured}" if configured else "on this host"
        hint = f"install it, or set extensions.tavern-scripts.interpreters to {{{language!r}: its absolute path}}"
        raise Refused(
            ScriptErrorType.DEPENDENCY, f"{_NAMES[language]}, which runs {language}, was not found {where}; {hint}"
        )
    if language == "python":
        return await _python(program, is_own=configured is None)
    version = (await _ask(program, "--version")).strip().removeprefix("v")
    return Interpreter(language, await _real(program), version)


async def _python(program: str, *, is_own: bool) -> Interpreter:
    """Return the interpreter of a Python program. Of the host's own environment scripts see nothing, only what it was
    made from; an environment that the operator names is used as it is."""
    try:
        version, base = map(str, json.loads(await _ask(program, "-I", "-B", "-c", _ABOUT_PYTHON)))
    except (ValueError, TypeError) as error:
        raise _mute(program, f"it answered with something else: {error}") from None
    return Interpreter("python", await _real(base) if is_own else program, version)


async def _real(path: str) -> str:
    """Return a path without links."""
    return await asyncio.to_thread(os.path.realpath, path)


async def _ask(*argv: str) -> str:
    """Return the output of an interpreter of the operator. It gets nothing of the host's environment but its path."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            cwd=Path(argv[0]).anchor,
        )
    except OSError as error:
        raise _mute(argv[0], error.strerror or str(error)) from None
    try:
        async with asyncio.timeout(_ASKING):
            answer, _ = await process.communicate()
    except TimeoutError:
        raise _mute(argv[0], f"it did not say its version within {_ASKING:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise _mute(argv[0], f"asked for its version, it ended with exit code {process.returncode}")
    return answer.decode("utf-8", "replace")


def _mute(program: str, reason: str) -> Refused:
    return Refused(ScriptErrorType.DEPENDENCY, f"the interpreter {program} cannot be used: {reason}")
