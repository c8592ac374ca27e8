"""The tool files of a project with the code of their scripts, and the `toolFiles` service that edits them.

A tool file is named by its path in the project's folder `tools`, without the `.tool.json` at its end: `text/greet`.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.tools import ToolDefinition, ToolKind
from tavern_host.contracts.wire import Model
from tavern_scripts.api.scripts import ScriptEnforced, ScriptLanguage
from tavern_tools.api.toolcalls import ToolResult

MAX_SOURCE = 1 << 20
"""How many characters a tool file, and the code of its script, may have."""


class ToolSource(Model):
    """The text of a tool file, and the code of the script that it names; without `code` the script is as it is."""

    text: str = Field(max_length=MAX_SOURCE)
    code: str | None = Field(default=None, max_length=MAX_SOURCE)


class ToolFileProblem(Model):
    """Something that is wrong with a tool file: its place in the document, or in the `code` where `location` is that
    word alone. With a `warning` the tool is used nevertheless."""

    message: str
    location: list[str | int] = Field(default_factory=list)
    line: int | None = None
    column: int | None = None
    warning: bool = False


class ToolFile(Model):
    """A tool file. `tool_id` and `kind` are what it says, as far as it can be read; `script` is the path of the script
    in the project whose code can be edited with it. The `source` is left out of lists."""

    name: str
    revision: str
    tool_id: str = ""
    kind: ToolKind | None = None
    script: str | None = None
    source: ToolSource | None = None
    problems: list[ToolFileProblem] = Field(default_factory=list)


class ToolFileCheck(Model):
    """What is wrong with a tool file, the tool that it would be, and for a script what the sandbox would enforce."""

    ok: bool
    problems: list[ToolFileProblem] = Field(default_factory=list)
    definition: ToolDefinition | None = None
    enforced: ScriptEnforced | None = None


class ToolDraft(Model):
    """What follows from a script's docstring and signature. `entry_point` is the function that it is of, None where the
    script reads its input itself; `notes` say what could not be told."""

    entry_point: str | None = None
    display_name: str = ""
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    output: dict[str, JsonValue] | None = None
    notes: list[str] = Field(default_factory=list)


_WRITE = "Write and delete the project's tool files, and the code of their scripts."


class ToolFiles(ServiceInterface, name="toolFiles"):
    """Edits the tools of a project that are nodes, workflows or scripts. Those of plugins are not among them, and one
    that calls a method of a service is only read: it is the operator's to write.

    Nothing outside of the folders `tools` and `scripts` of the project is read or written, and links are not followed.
    All methods raise `InvalidInput` for a name that is none.
    """

    @reads
    async def list_files(self) -> list[ToolFile]:
        """Return the project's tool files by name, also those that cannot be used, with what is wrong with them."""

    @reads
    async def get(self, name: str) -> ToolFile:
        """Return a tool file with its source. Raises `NotFound`."""

    @reads
    async def check(self, name: str, source: ToolSource) -> ToolFileCheck:
        """Return the findings of `tavern tools check` about a source, as if it were the file; nothing is stored."""

    @reads
    async def draft(self, code: str, language: ScriptLanguage, *, entry_point: str | None = None) -> ToolDraft:
        """Return the draft of a tool from the code of its script, none of which is run. Where there is no function
        `entry_point`, it is of another one, and a note says so. Raises `InvalidInput` for code that cannot be read."""

    @acts("toolManager:execute", "Call tools.")
    async def try_out(
        self, name: str, source: ToolSource, arguments: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> ToolResult:
        """Call a tool as it is in a source, with the rights of the caller, without keeping it. Raises `InvalidInput`
        for a source that is no tool; a failed call is a result."""

    @acts("toolFiles:write", _WRITE)
    async def save(
        self, name: str, source: ToolSource, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> ToolFile:
        """Write a tool file and the code of its script; an empty `expected_revision` says that there must be none. The
        answer has the warnings of `check`, such as for a tool without a description.

        Raises `InvalidInput` with all problems of a source that cannot be used, `PermissionDenied` for a tool that is
        not edited here, `Conflict` where another revision is stored, an id is taken, or code would replace a script
        that was not the tool's.
        """

    @acts("toolFiles:write", _WRITE)
    async def delete(
        self,
        name: str,
        *,
        with_script: bool = False,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> None:
        """Delete a tool file; `with_script` also its script, unless another tool of the project names it. Raises
        `NotFound`, and `Conflict` where another revision is stored."""


TOOL_FILES = ServiceKey(ToolFiles)
