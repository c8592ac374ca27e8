"""Kinds of files of other programs, what an importer is given and answers, and the `importManager` service."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model

MAX_FILE = 16 << 20
"""How many bytes a file may have, with those beside it."""
MAP_FILE = "import-map.yaml"
"""The file of a project that says which parts here are those of other programs."""
MAX_BESIDE = 500
"""How many files may lie beside one that is imported with its folder."""

FileForm = Literal["json", "jsonl", "yaml", "png", "webp", "jpeg", "charx", "text", "other"]
"""What a file is written in: of `jsonl` the first line, an object, is looked at; a picture, or the archive of a
character, is imported for the JSON texts within it."""


class ForeignFile(Model):
    """A file that somebody hands over: its name, its content, and by path the files of its folder, where that, or a ZIP
    archive of it, was handed over."""

    name: str = Field(min_length=1, max_length=300)
    content: bytes
    beside: dict[str, bytes] = Field(default_factory=dict)


class ImportOptions(Model):
    """What is wanted of an import. `name` is what the result is to be called, where the file's own name is not it.
    `only` are patterns of what is taken of a file that holds several things, `hosts` are names that programs in it may
    reach. With `replace` files of a project that are there already are replaced. With `dry_run` nothing is kept."""

    name: str = Field(default="", max_length=200)
    only: list[str] = Field(default_factory=list, max_length=500)
    hosts: list[str] = Field(default_factory=list, max_length=100)
    replace: bool = False
    dry_run: bool = False


class ImportRequest(Model):
    """What an importer is given: the file, the `kind` that it is of, and the `document` that it holds, of a picture its
    JSON texts by keyword, of lines the first; what is wanted, and on whose behalf it acts. `counterparts` is what the
    project's `import-map.yaml` says."""

    kind: str
    file: ForeignFile
    document: JsonValue = None
    counterparts: dict[str, JsonValue] = Field(default_factory=dict)
    options: ImportOptions = Field(default_factory=ImportOptions)
    call: CallContext

    def object(self) -> dict[str, JsonValue]:
        """Return the document, which is to be an object. Raises `InvalidInput`."""
        if not isinstance(self.document, dict):
            raise InvalidInput(f"{self.file.name} holds no object")
        return self.document


class ImportedThing(Model):
    """Something that came, or would come, of a file. `page` is where the studio shows it: `/workflows/greeting`. Of a
    file of a project, `state` says whether there was none, the same or another one, which was replaced or kept."""

    kind: str
    id: str
    name: str = ""
    page: str = ""
    state: Literal["new", "same", "replaced", "kept"] = "new"


class ImportReport(Model):
    """What came of a file, what of it has no effect here, and what there is to do next, each a sentence."""

    things: list[ImportedThing] = Field(default_factory=list)
    without_effect: list[str] = Field(default_factory=list)
    next_steps: list[str] = Field(default_factory=list)


class ImportResult(ImportReport):
    """The report of an importer, with the `kind` of the file; with `dry_run` nothing was kept."""

    kind: str
    title: str
    dry_run: bool = False


class ImporterInfo(Model):
    """A kind of files that a plugin recognises and imports. `title` is what a person calls one: "ComfyUI workflow".

    A file is of this kind if it is written in one of the `forms` and fits the `marks`, a JSON Schema of what it holds;
    of a picture these are its JSON texts by keyword, in small letters. References and lookarounds in it are not
    followed. `entries` are names of files by which a folder, or an archive, is of this kind. `handler` is
    `module:function` in the plugin: `async def handler(request: ImportRequest, context: PluginContext) ->
    ImportReport`. It reaches no network and runs nothing of the file. Only who may `operate` imports what has that as
    its `access`."""

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=ImportReport)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,60}$")
    title: str = Field(min_length=1, max_length=80)
    handler: Handler
    marks: dict[str, JsonValue]
    forms: list[FileForm] = Field(default_factory=lambda: list[FileForm](["json"]))
    entries: list[str] = Field(default_factory=list)
    access: Literal["create", "operate"] = "create"


class ImportKind(Model):
    """A kind of files that can be imported, and the plugin that does it."""

    name: str
    title: str
    plugin: str
    forms: list[FileForm] = Field(default_factory=list)
    entries: list[str] = Field(default_factory=list)
    access: Literal["create", "operate"] = "create"


class ImportManager(ServiceInterface, name="importManager"):
    """Recognises files of other programs, and has the plugin that knows one import it."""

    @reads
    async def kinds(self) -> list[ImportKind]:
        """Return the kinds of files, in the order in which a file is compared with them."""

    @reads
    async def recognise(self, file: ForeignFile) -> ImportKind | None:
        """Return the first kind whose marks a file has; None for any other file, and for one that cannot be read."""

    @acts("importManager:import", "Import files of other programs, on behalf of the caller.", level="override")
    async def import_file(
        self,
        file: ForeignFile,
        *,
        kind: str | None = None,
        options: ImportOptions | None = None,
        call: CallContext | None = None,
    ) -> ImportResult:
        """Import a file, as the `kind` that is named, else as the one that is recognised. Raises `InvalidInput` for a
        file that is of no kind or cannot be read, `NotFound` for a kind that there is not, `Forbidden` where the caller
        may not import it."""


IMPORT_MANAGER = ServiceKey(ImportManager)
