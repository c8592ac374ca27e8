"""The page on a first plugin, as its reader follows it: in a new environment, each command as it is written there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from documentation.pages import Page, Snippet
from documentation.snippets import compare
from pip_environments import REPOSITORY, Environment, run

pytestmark = pytest.mark.timeout(900)  # it installs and builds

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
HERE = f"tests/real/install/{Path(__file__).name}"
MOST, MOST_FOR_FRONT_END = 15, 10
"""How many commands the plugin and its front end may take."""


def commands(snippet: Snippet) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with the output that the page shows."""
    for part in snippet.text.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield command.strip(), output


@dataclass
class Reader:
    """Somebody who follows the page in a terminal: where they are, and what they typed."""

    environment: Environment
    folder: Path
    typed: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """Those of the terminal. The build tools are in the environment, as nothing can be downloaded for a build."""
        path = f"{self.environment.root / 'bin'}:/usr/bin:/bin"
        return {**self.environment.variables(), "PATH": path, "PIP_NO_BUILD_ISOLATION": "0", "COLUMNS": "160"}

    def does(self, snippet: Snippet) -> None:
        """Do what a block of the page says."""
        said = (snippet.directive or "").removeprefix(f"not run: {HERE} ")
        verb, _, file = said.rpartition(" ")
        if said == "runs it":
            for command, output in commands(snippet):
                self.types(command, output)
        elif verb in ("writes", "adds to"):
            target = self.folder / file
            target.parent.mkdir(exist_ok=True)
            before = target.read_text() if verb == "adds to" else ""
            target.write_text(before + snippet.text)
        else:
            assert said in ("makes this environment", "serves and asks for the front end"), snippet.place
            self.typed += [command for command, _ in commands(snippet)]

    def types(self, command: str, output: str) -> None:
        """Run a command in the folder where the last one ended; its output has to be what the page says."""
        self.typed.append(command)
        done = run("bash", "-c", f"{command}\ncode=$?; pwd >&2; exit $code", cwd=self.folder, **self.variables)
        *errors, where = done.stderr.splitlines()
        is_refused = output.startswith("Error: ")
        assert (done.returncode == 0) is not is_refused, f"{command}\n{done.stdout}\n{done.stderr}"
        compare(output, errors[-1] if is_refused else done.stdout)
        self.folder = Path(where)

    def serves(self, path: str) -> str:
        """Return a file of the plugin as a server of the project gives it to the page."""
        command = [self.environment.root / "bin" / "tavern", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=self.variables, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            opened = (re.search(r"(http://\S+)/\?token=(\S+)", line) for line in server.stdout)
            base, token = next(found for found in opened if found).groups()
            headers = {"Authorization": f"Bearer {token}"}
            with urlopen(Request(base + path, headers=headers), timeout=60) as answer:
                return str(answer.read().decode())
        finally:
            server.terminate()
            server.wait(timeout=60)


def test_an_author_comes_from_nothing_to_an_index_in_few_commands(tmp_path: Path) -> None:
    environment = Environment(tmp_path / ".venv")
    testing = PROJECT["optional-dependencies"]["testing"]
    environment.make(*PROJECT["dependencies"], *testing, "hatchling", "editables", "pip")
    environment.pip_install("--no-deps", "--no-build-isolation", "--editable", REPOSITORY)
    reader = Reader(environment, tmp_path)
    snippets = Page.read("docs/first-plugin.md").snippets
    (front_end,) = [number for number, snippet in enumerate(snippets) if snippet.language == "javascript"]
    for snippet in snippets[:front_end]:
        reader.does(snippet)
    needed = len(reader.typed)
    for snippet in snippets[front_end:]:
        reader.does(snippet)
    assert (needed, len(reader.typed) - needed) == (15, 6), "as many as the page says"
    assert needed <= MOST and len(reader.typed) - needed <= MOST_FOR_FRONT_END
    assert reader.serves("/plugins/acme-words/index.js") == snippets[front_end].text
