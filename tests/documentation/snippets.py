"""Does what the code blocks of a page say, from top to bottom, in a folder of its own: runs Python and `tavern`,
checks YAML as the host reads it, loads the plugins that the page writes, runs the tests that it writes.

What a block is, if its language does not say it, stands in a comment before it: `<!-- snippet: … -->`.

| comment | for | the block is |
| --- | --- | --- |
| `file PATH` | any | written to a file; at the end a folder with a `plugin.yaml` is loaded, a `test_….py` run |
| `file PATH, with mistakes` | yaml | written to a file and not loaded: the page shows what is wrong with it |
| `continues` | python | run with the names of the block before |
| `output` | text, json | what the Python block before printed |
| `plugin.yaml`, `host.yaml`, `tavern.yaml` | yaml | read as that file |
| `part of plugin.yaml` | yaml | read as a manifest, with what it lacks filled in |
| `refused plugin.yaml: WHY` | yaml | a manifest, or a part of one, that the host refuses with these words |
| `not run: REASON` | any | left alone |

Python may `await`. Console blocks hold `$ tavern …` lines, each with what it prints; `…` stands for anything.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tavern_host import Host
from tavern_host.contracts.plugins import MANIFEST, PluginState
from tavern_host.plugins.manifest import read_manifest
from tavern_host.plugins.operator_file import OperatorFile
from tavern_host.plugins.permissions import asked
from tavern_host.projects import make_project, read_project_file
from tavern_host.storage.yaml_file import InvalidFile, read_yaml
from tests.helpers.command_line import FEW_PLUGINS, tavern

from . import platform
from .pages import ROOT, Page, Snippet

SAMPLE = ROOT / "plugins" / "tavern_demo" / "sample"
SECONDS = 120.0
_FILES = {"py": "python", "yaml": "yaml", "json": "json", "toml": "toml", "js": "javascript", "css": "css"}
_MANIFEST_HEAD = {"name": "acme", "displayName": "Acme", "version": "1.0.0"}


class Wrong(AssertionError):
    """A snippet does not do what the page says."""


@dataclass
class PageRun:
    """One page being carried out in `folder`, which is a project with the sample."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    files: list[Path] = field(default_factory=list)

    def whole(self, page: Page) -> None:
        """Do everything that the page says. Raises `Wrong` with the place."""
        make_project(self.folder, [SAMPLE])
        with contextlib.chdir(self.folder):
            for snippet in page.snippets:
                if snippet.in_reference:
                    continue
                try:
                    self._one(snippet)
                except (Exception, SystemExit) as error:
                    raise Wrong(f"{snippet.place}: {type(error).__name__}: {error}") from error
            self._load_plugins(page)
            self._run_tests(page)

    # --- one snippet ------------------------------------------------------------------------------

    def _one(self, snippet: Snippet) -> None:
        said = snippet.directive or ""
        if said.startswith("not run: ") and said.removeprefix("not run: ").strip():
            return
        if said.startswith("file "):
            name, mistakes, _ = said.removeprefix("file ").partition(", with mistakes")
            self._write(name, snippet, is_sound=not mistakes)
        elif snippet.language == "python" and said in ("", "continues"):
            self._python(snippet, continues=said == "continues")
        elif snippet.language in ("text", "json") and said == "output":
            compare(snippet.text, self.printed)
        elif snippet.language == "console" and not said:
            self._console(snippet)
        elif snippet.language == "yaml" and said.startswith("refused plugin.yaml: "):
            _refused(self.folder, snippet.text, said.partition(": ")[2])
        elif snippet.language == "yaml" and said in _YAML:
            _YAML[said](self.folder, snippet.text)
        elif snippet.language == "json" and not said:
            json.loads(snippet.text)
        elif snippet.language == "toml" and not said:
            tomllib.loads(snippet.text)
        elif snippet.language != "text" or said:
            raise Wrong(f"a {snippet.language} block with {said!r}: say what it is, or `not run:` and why")

    def _write(self, name: str, snippet: Snippet, *, is_sound: bool) -> None:
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or _FILES.get(path.suffix[1:]) != snippet.language:
            raise Wrong(f"{name} is not a file of this folder in the language {snippet.language}")
        if snippet.language == "python":
            ast.parse(snippet.text)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(snippet.text, encoding="utf-8")
        if is_sound:
            self.files.append(self.folder / path)

    def _python(self, snippet: Snippet, *, continues: bool) -> None:
        if not continues:
            self.names = {"__name__": "__main__"}
        lines = "\n" * (snippet.line - 1)  # so that a traceback names the line of the page
        code = compile(
            lines + snippet.text, snippet.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        output = io.StringIO()
        ended: list[SystemExit] = []

        async def run() -> None:
            try:
                result = eval(code, self.names)
                if inspect.isawaitable(result):
                    await result
            except SystemExit as error:  # what a task ends with that nobody asks is logged in the middle of later tests
                ended.append(error)

        with contextlib.redirect_stdout(output):
            asyncio.run(asyncio.wait_for(run(), SECONDS))
        if ended:
            raise ended[0]
        self.printed = output.getvalue()

    def _console(self, snippet: Snippet) -> None:
        for command, expected in commands(snippet.text):
            words = shlex.split(command)
            if words[:1] != ["tavern"]:
                raise Wrong(f"$ {command}: only `tavern` can be run; give the others a block of their own")
            code, shown = _tavern(words[1:], self.folder)
            try:
                compare(expected, shown)
            except Wrong as error:
                raise Wrong(f"$ {command}\n{error}") from None
            failed = any(line.startswith("Error:") for line in expected.splitlines())
            if (code != 0) != failed:
                raise Wrong(f"$ {command}: it ended with {code}\n{shown}")

    # --- what the page wrote ----------------------------------------------------------------------

    def _load_plugins(self, page: Page) -> None:
        folders = sorted({file.parent for file in self.files if file.name == MANIFEST})
        if not folders:
            return

        async def problems() -> list[str]:
            names = [read_manifest(folder)[0].name for folder in folders]
            other = self.folder / "another-project"
            async with Host(other, plugins=folders, trust=names) as host:
                found = [host.plugin(name) for name in names]
                return [
                    f"{p.name} is {p.state.value}: {', '.join(map(str, p.problems))}"
                    for p in found
                    if p.state is not PluginState.STARTED or p.problems
                ]

        wrong = asyncio.run(problems())
        if wrong:
            raise Wrong(f"{page.path}: " + "\n".join(wrong))

    def _run_tests(self, page: Page) -> None:
        tests = [file for file in self.files if file.name.startswith("test_")]
        if not tests:
            return
        options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", f"--rootdir={self.folder}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *map(str, tests)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **FEW_PLUGINS},
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0 or " passed" not in done.stdout:
            raise Wrong(f"{page.path}: its tests end with {done.returncode}\n{done.stdout}{done.stderr}")


# --- YAML ---------------------------------------------------------------------------------------------


def _manifest(folder: Path, text: str) -> None:
    inner = folder / "manifest-of-the-page"
    inner.mkdir(exist_ok=True)
    (inner / MANIFEST).write_text(text, encoding="utf-8")
    for path in re.findall(r"[\w./-]+\.(?:js|css)\b", text):  # the front end that it tells of
        for file in (inner / path, inner / "web" / path):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    manifest, problems, _ = read_manifest(inner)
    problems = [*problems, *asked(manifest, publishers=platform.publishers())[1]]
    if problems:
        raise Wrong("\n".join(map(str, problems)))


def _part(folder: Path, text: str) -> None:
    part = yaml.safe_load(text)
    name = re.search(r"\bextensions\.([a-z0-9-]+)\.|hook:plugin:([a-z0-9-]+):", text)
    head = {**_MANIFEST_HEAD, "name": (name[1] or name[2]) if name else "acme"}
    _manifest(folder, yaml.safe_dump({**{k: v for k, v in head.items() if k not in part}, **part}))


def _refused(folder: Path, text: str, why: str) -> None:
    try:
        _part(folder, text)
    except (InvalidFile, Wrong) as error:
        if why not in str(error):
            raise Wrong(f"the host refuses it, but does not say {why!r}: {error}") from None
    else:
        raise Wrong("the host accepts it")


def _host_file(folder: Path, text: str) -> None:
    path = folder / "host-of-the-page.yaml"
    path.write_text(text, encoding="utf-8")
    read_yaml(path, OperatorFile)


def _project_file(folder: Path, text: str) -> None:
    root = folder / "project-of-the-page"
    root.mkdir(exist_ok=True)
    (root / "tavern.yaml").write_text(text, encoding="utf-8")
    read_project_file(root)


_YAML = {
    "plugin.yaml": _manifest,
    "part of plugin.yaml": _part,
    "host.yaml": _host_file,
    "tavern.yaml": _project_file,
}


# --- the command line ---------------------------------------------------------------------------------


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each `$ command` of a console block with the lines that it prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if parts[0].strip():
        raise Wrong(f"a console block begins with `$ `, not with {parts[0].splitlines()[0]!r}")
    for part in parts[1:]:
        command, _, expected = part.replace("\\\n", " ").partition("\n")
        yield command, expected


def _tavern(arguments: list[str], folder: Path) -> tuple[int, str]:
    if arguments[:1] == ["audit"]:
        for thread in threading.enumerate():  # the end of a process writes entries, and none has ended here
            if thread.name == "audit log":
                thread._target.__self__.flush()  # type: ignore[attr-defined]
    done = tavern(*arguments, cwd=folder, one_stream=True)
    return done.code, done.out


def compare(expected: str, shown: str) -> None:
    """Raise `Wrong` unless `shown` is what a page says. `…` stands for anything, alone on a line for any lines.

    Runs of blanks, blank lines and the length of rules do not count. Where nothing is expected, anything may come.
    """
    wanted, got = _lines(expected), _lines(shown)
    if not wanted:
        return
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in wanted)
    if not re.fullmatch(pattern, "".join(f"{line}\n" for line in got)):
        raise Wrong("the page says\n" + "\n".join(wanted) + "\n--- and this came\n" + "\n".join(got))


def _lines(text: str) -> list[str]:
    plain = (re.sub(r"─+", "─", re.sub(r"\s+", " ", line)).strip() for line in text.splitlines())
    return [line for line in plain if line]
