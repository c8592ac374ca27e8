"""The project's tool files and their scripts on the disk: what they are called, read and hold. Waits for the disk.

A script that is edited with its tool is named by `scriptPath`, lies in the project's folder for scripts, and is code by
the end of its name; of two places that a path may mean, it is the one where the sandbox finds it.
"""

from __future__ import annotations

import hashlib
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tavern_host.contracts.documents import read_document
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.tools import ToolDefinition, ToolKind
from tavern_scripts.api.scripts import CODE_SUFFIXES
from tavern_tools.api.toolfiles import MAX_SOURCE, ToolFile, ToolFileProblem, ToolSource
from tavern_tools.builtin.project_folder import Steps, list_folder, read
from tavern_tools.catalog.definitions import KINDS
from tavern_tools.catalog.files import MAX_TOOL_FILE, SUFFIX, ToolProblem, read_text
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.project_paths import read_path

_NO_DESCRIPTION = "it has no description: language models are not told what it does, nor when to call it"
_NO_PARAMETERS = "it names no parameters: its callers read that it takes none"
_NO_ENTRY = "it names no function, and the script does not read stdin: what it is called with does not reach it"
MOST_FILES = 5_000
_COMPILED = "__pycache__"
_FOLDER = "folder for tools"


@dataclass(frozen=True)
class Stored:
    """A tool file as it is: its text, the steps to its script in the folder for scripts, and that one's code."""

    name: str
    text: str
    script: Steps | None
    code: str | None
    definition: ToolDefinition | None
    problems: list[ToolProblem] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        """What another content of either file changes."""
        parts = (self.text, *([] if self.code is None else [self.code]))
        data = b"".join(b"%d:%s" % (len(part), part.encode(errors="surrogatepass")) for part in parts)
        return hashlib.blake2b(data, digest_size=16).hexdigest()

    @property
    def kind(self) -> ToolKind | None:
        """How the tool is carried out, as far as the file says it."""
        return KINDS.get(str(_implementation(self.document).get("type")))

    def shown(self, *, whole: bool) -> ToolFile:
        """Return it as it is shown; its source where it is the `whole`."""
        return ToolFile(
            name=self.name,
            revision=self.revision,
            tool_id=tool_id_of(self.document),
            kind=self.kind,
            script=None if self.script is None else "/".join(("scripts", *self.script)),
            source=ToolSource(text=self.text, code=self.code) if whole else None,
            problems=[*(told(problem) for problem in self.problems), *(self.lacking() if whole else ())],
        )

    def lacking(self) -> list[ToolFileProblem]:
        """Return warnings about what the tool leaves out though its callers go by it; it can be called nevertheless."""
        tool = self.definition
        if tool is None:
            return []
        takes = {key: value for key, value in tool.parameters.items() if key != "type"}
        is_deaf = self.code is not None and "stdin" not in self.code and entry_point_of(tool) is None
        rows = [
            ("description", not tool.description.strip(), _NO_DESCRIPTION),
            ("parameters", tool.kind == "script" and not any(takes.values()), _NO_PARAMETERS),
            ("implementation.entryPoint", is_deaf, _NO_ENTRY),
        ]
        return [ToolFileProblem(message=m, location=[*at.split(".")], warning=True) for at, lacks, m in rows if lacks]


class ToolFolders:
    """The folders `tools` and `scripts` of a project."""

    def __init__(self, root: Path) -> None:
        self.tools, self.scripts = root / "tools", root / "scripts"

    def path(self, steps: Steps) -> Path:
        """Return the path of a tool file."""
        return self.tools.joinpath(*steps)

    def list(self) -> list[Stored]:
        """Return all tool files by name; those that cannot be read are left out."""
        found = list_folder(self.tools, (), recursive=True, wanted=_is_tool_file, limit=MOST_FILES)
        names = ["/".join(entry.steps).removesuffix(SUFFIX) for entry in found.entries]
        stored: list[Stored] = []
        for name in names:
            with suppress(TavernError):
                stored.append(self.read(name))
        return stored

    def read(self, name: str) -> Stored:
        """Return a tool file. Raises `NotFound`, and `InvalidInput` for what is no name and no text."""
        steps = steps_of(name)
        try:
            data = read(self.tools, steps, most=MAX_TOOL_FILE)
        except NotFound:
            raise NotFound(f"the project has no tool file {quoted(name)}") from None
        return self.of("/".join(steps).removesuffix(SUFFIX), _text(data, name))

    def of(self, name: str, text: str, code: str | None = None) -> Stored:
        """Return a tool file that has this text; without `code`, with that which its script has."""
        data = text.encode(errors="surrogatepass")
        definition, problems = read_text(data, self.path(steps_of(name)), None)
        document: dict[str, Any] = {}
        with suppress(TavernError):
            document = read_document(data)
        script = self.script_of(document)
        if code is None and script is not None:
            code = self.code_of(script)
        return Stored(name, text, script, code, definition, problems, document)

    def script_of(self, document: dict[str, Any]) -> Steps | None:
        """Return where the script of a tool is, or is to be, in the folder for scripts; None for what is not edited."""
        path = _implementation(document).get("scriptPath")
        if not isinstance(path, str) or path.startswith(("/", "~")):
            return None
        try:
            steps = read_path(path)
        except InvalidInput:
            return None
        if not steps or PurePosixPath(steps[-1]).suffix not in CODE_SUFFIXES or path != "/".join(steps):
            return None
        if any(step.startswith(".") or step == _COMPILED for step in steps):
            return None
        is_named_from_project = steps[0] == self.scripts.name and len(steps) > 1
        return steps[1:] if is_named_from_project and self.code_of(steps) is None else steps

    def code_of(self, steps: Steps) -> str | None:
        """Return the code of a script, or None where there is none to be read."""
        with suppress(TavernError):
            return _text(read(self.scripts, steps, most=MAX_SOURCE), steps[-1])
        return None

    def spelled_alike(self, steps: Steps) -> str | None:
        """Return the name of another tool file that differs by case or by the form of Unicode alone, or None."""
        found = list_folder(self.tools, (), recursive=True, wanted=_is_tool_file, limit=MOST_FILES)
        wanted = _alike(steps)
        return next(
            ("/".join(one.steps) for one in found.entries if one.steps != steps and _alike(one.steps) == wanted), None
        )


def steps_of(name: str) -> Steps:
    """Return the steps to the tool file of this name. Raises `InvalidInput`."""
    steps = read_path(name, _FOLDER)
    if not steps:
        raise InvalidInput("a tool file needs a name, such as text/greet")
    if any(step.startswith(".") for step in steps):
        raise InvalidInput(f"{quoted(name)} has a part that begins with a dot; such files are hidden, and no tools")
    if steps[-1].lower().endswith(SUFFIX):
        raise InvalidInput(f"{quoted(name)} is to be named without {SUFFIX}")
    return read_path("/".join(steps) + SUFFIX, _FOLDER)


def tool_id_of(document: dict[str, Any]) -> str:
    """Return the id of a tool, as far as there is one."""
    found = document.get("id") or document.get("toolId")
    return found if isinstance(found, str) else ""


def entry_point_of(definition: ToolDefinition) -> str | None:
    """Return the function that the script of a tool is called by; None where it reads its input itself."""
    return str((definition.implementation.model_extra or {}).get("entryPoint") or "") or None


def told(problem: ToolProblem) -> ToolFileProblem:
    """Return a problem of a file as one of a source."""
    fields = ("message", "location", "line", "column", "warning")
    return ToolFileProblem.model_validate({name: getattr(problem, name) for name in fields})


def _implementation(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("implementation") or document.get("handler")
    return found if isinstance(found, dict) else {}


def _is_tool_file(steps: Steps, is_folder: bool) -> bool:
    return not is_folder and steps[-1].endswith(SUFFIX) and not any(step.startswith(".") for step in steps)


def _alike(steps: Steps) -> str:
    return unicodedata.normalize("NFKC", "/".join(steps)).casefold()


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{quoted(name)} is no UTF-8 (byte {error.start:,})") from None
