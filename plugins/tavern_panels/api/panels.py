"""Panels: the interface of workflows and agents as a page of its own, and the `panelManager` service that keeps them.

A panel is a file `panels/ID.json`. Keys that are not known here survive a load and a save.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model, OpenModel
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_tools.api.toolcalls import QuestionKind

MAX_PANEL = 256 * 1024
"""How many bytes a panel may have."""

MAX_ELEMENTS = 60
"""How many elements a panel may have."""

MAX_PANELS = 1000
"""How many panels of a project are read, in the order of their names."""

COLUMNS = 12
"""How many columns the grid has on a wide screen; on a narrow one elements stand one below the other."""

MAX_ROWS = 1000
"""How many rows the grid has at most, and an element."""

PANELS_CHANGED = "PANELS_CHANGED"
"""The event when panels are written, deleted, or changed by somebody else: `changed` are their ids."""

PanelKind = Literal["workflow", "agent", "text"]

ID = r"^[^\s/\\<>:\"|?*@.\x00-\x1f][^/\\<>:\"|?*@\x00-\x1f]{0,79}$"
"""The id of a panel: the name of its file without `.json`."""


class PanelInput(OpenModel):
    """What a panel says about an input of a workflow. Without `shown` people do not see it, and cannot give it. `value`
    is what it has until somebody changes it, in the place of the workflow's default."""

    shown: bool = True
    label: str | None = Field(default=None, max_length=200)
    hint: str | None = Field(default=None, max_length=1000)
    value: JsonValue = None


class PanelExample(OpenModel):
    """Values that somebody may try: a name, and values by input."""

    name: str = Field(min_length=1, max_length=200)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)


class PanelElement(OpenModel):
    """Something on a panel: a `workflow` as a form with its results, a conversation with an `agent`, or a `text`.

    `target` is the id of the workflow or agent, `text` is Markdown, which stands above the form too. `inputs` is about
    inputs by key; those that it does not name are shown as the workflow has them. `outputs` are the keys of those that
    are shown, in their order; all of them where it is left out. `x` and `w` are columns of 12, `y` and `h` rows.
    Without `x` and `y` it stands below the others.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")
    kind: PanelKind
    target: str = Field(default="", max_length=1000)
    title: str = Field(default="", max_length=200)
    text: str = Field(default="", max_length=20_000)
    inputs: dict[str, PanelInput] = Field(default_factory=dict)
    outputs: list[str] | None = None
    examples: list[PanelExample] = Field(default_factory=list, max_length=20)
    x: int | None = Field(default=None, ge=0, lt=COLUMNS)
    y: int | None = Field(default=None, ge=0, lt=MAX_ROWS)
    w: int | None = Field(default=None, ge=1, le=COLUMNS)
    h: int | None = Field(default=None, ge=1, le=MAX_ROWS)


class Panel(OpenModel):
    """A file of a panel. Its id is the name of the file; an `id` inside is carried along.

    Who may not change panels sees and uses those that are `published`, and no others.
    """

    id: str | None = None
    name: str = Field(min_length=1, max_length=200, description="Its name, for people.")
    description: str = Field(default="", max_length=5000, description="What it is for, in Markdown.")
    published: bool = Field(default=False, description="Whether it is there for people who may not change panels.")
    elements: list[PanelElement] = Field(default_factory=list, max_length=MAX_ELEMENTS)


class PanelFile(Model):
    """A panel as its file has it, and the revision of that, which a change may be made conditional on."""

    id: str
    revision: str
    document: dict[str, JsonValue]


class PanelSummary(Model):
    """What a list of panels shows. `problem` is why a file holds no panel that can be used."""

    id: str
    name: str = ""
    description: str = ""
    published: bool = False
    elements: int = 0
    revision: str = ""
    problem: str | None = None


class PanelProblem(Model):
    """What is wrong with a panel: the `file`, the `element`, a JSON path, what it is, and what mends it."""

    panel: str
    file: str
    element: str | None = None
    path: str = "$"
    level: Literal["error", "warning"] = "error"
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" + (f" ({self.element})" if self.element else "")
        return f"{where}: {self.message}" + (f"; {self.hint}" if self.hint else "")


class ShownSlot(Model):
    """An input or output as people are shown it: its slot, with the panel's words and value in the place of those that
    the workflow has."""

    key: str
    slot: InterfaceSlot


class ShownElement(Model):
    """An element as people are shown it. `problem` says why it cannot be used now."""

    id: str
    kind: PanelKind
    title: str = ""
    text: str = ""
    inputs: list[ShownSlot] = Field(default_factory=list)
    outputs: list[ShownSlot] = Field(default_factory=list)
    examples: list[PanelExample] = Field(default_factory=list)
    x: int
    y: int
    w: int
    h: int
    problem: str | None = None


class ShownPanel(Model):
    """A panel as people are shown it: nothing of what it hides, and nothing of how its workflows are made."""

    id: str
    name: str
    description: str = ""
    published: bool = False
    revision: str
    elements: list[ShownElement] = Field(default_factory=list)


class PanelQuestion(Model):
    """What an agent asks the person who uses the panel, until a time: the `message`, and the JSON Schema that an answer
    has to fit. A `file` is answered by a Blob."""

    id: str
    kind: QuestionKind
    message: str
    expects: dict[str, JsonValue]
    until: datetime


class PanelRun(Model):
    """A run that somebody began in a panel. `outputs` are those that the element shows; the reply of an agent stands
    under `reply`. `waits` says that a person has to decide about a call before it continues; a `question` is for the
    person who began the run."""

    id: str
    element: str
    status: Literal["queued", "running", "complete", "error", "interrupted"]
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    outputs: dict[str, JsonValue] = Field(default_factory=dict)
    error: str | None = None
    waits: bool = False
    question: PanelQuestion | None = None
    submitted_at: datetime
    finished_at: datetime | None = None


class PanelMessage(Model):
    """What was said in a conversation of a panel. `run` is the run of the agent that said it, or was asked."""

    role: Literal["user", "assistant"]
    text: str
    at: datetime
    run: str | None = None


class PanelManager(ServiceInterface, name="panelManager"):
    """Keeps the panels of the project, each in a file of the folder `panels`."""

    @reads
    async def list_panels(self) -> list[PanelSummary]:
        """Return all panels by id, files that hold none among them, with their problem."""

    @reads
    async def get(self, panel_id: str) -> PanelFile:
        """Return a panel. Raises `NotFound` with near names, `Misconfigured` for a file that holds no panel."""

    @reads
    async def validate(self, document: dict[str, JsonValue]) -> list[str]:
        """Return the mistakes of a document as a panel, each beginning with its place: `$.name: …`."""

    @reads
    async def check(
        self, panel_id: str | None = None, *, document: dict[str, JsonValue] | None = None
    ) -> list[PanelProblem]:
        """Return the problems of the panels, or one: files, and elements whose workflow, agent, input or output is
        not there; with a `document`, with that one in the place of all files. Raises `NotFound`."""

    @reads
    async def show(self, panel_id: str) -> ShownPanel:
        """Return a panel as people are shown it. Raises as `get`."""

    @reads
    async def preview(self, document: dict[str, JsonValue]) -> ShownPanel:
        """Return a document as people would be shown it as a panel, without an id. Raises `InvalidInput` with all
        mistakes."""

    @acts("panelManager:write", "Write and delete panels, and say which are published.")
    async def save(
        self,
        panel_id: str,
        document: dict[str, JsonValue],
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> PanelFile:
        """Write a panel, atomically; an empty `expected_revision` says that there must be none. Raises `InvalidInput`
        with all mistakes, and `Conflict` where another revision is stored."""

    @acts("panelManager:write", "Write and delete panels, and say which are published.")
    async def delete(
        self, panel_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> None:
        """Delete a panel. Raises `NotFound`, and `Conflict` as `save`."""


PANEL_MANAGER = ServiceKey(PanelManager)
