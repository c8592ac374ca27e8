"""What routes of the host and its first-party plugins take and answer with, beside the models of other contracts."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import Run
from tavern_host.contracts.llm import LlmModelInfo
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.contracts.settings import Origin, SettingItem
from tavern_host.contracts.toolcalls import ParsedText, ToolResult, ToolTask
from tavern_host.contracts.wire import Model, OpenModel


class ProblemDetails(OpenModel):
    """An error (RFC 9457). `code` is stable; `error`, `success` and `message` are what clients of the platform read."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    error: str
    success: bool = False
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)


class Done(Model):
    """What was asked for was done."""

    success: bool = True
    message: str


class PluginSwitch(Model):
    """Whether a plugin is to be enabled."""

    enabled: bool = Field(strict=True)


class PluginsChanged(Done):
    """The plugins that were changed."""

    plugins: list[PluginInfo]


class SettingValues(OpenModel):
    """Settings by key: full ones, or without `extensions.{plugin}.`."""


class CommandArguments(OpenModel):
    """The arguments of a command by name, without dashes before it and with underscores in it."""


class SettingsSaved(Done):
    """The plugin's settings in force after the save, and what is to be said of them, as that a secret is short."""

    settings: dict[str, JsonValue]
    notices: list[str] = Field(default_factory=list)


class ConfigOption(SettingItem):
    """An option of a plugin with its value in force, and where that comes from."""

    secret: bool
    plugin: str
    value: JsonValue = None
    origin: Origin
    is_set: bool


class OpenProject(Model):
    """The absolute path of a project's folder."""

    path: str


class ServedProject(Model):
    """A project that the server serves."""

    id: str
    name: str
    path: str
    is_default: bool


class BlobQuery(Model):
    """As what a Blob is sent; else as what it was put as."""

    media_type: str | None = None


class NodesReloaded(Done):
    """What became of plugins, and how many node types there are now."""

    count: int


class PromptAccepted(Model):
    """A run was accepted under this id."""

    prompt_id: str


class PromptSummary(Model):
    """A run as lists of the platform show it."""

    prompt_id: str
    status: str
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime


class PromptNodeState(Model):
    """A node of a run."""

    status: str
    output: JsonValue = None
    error: ErrorInfo | None = None


class PromptState(PromptSummary):
    """A run as it stands, in the platform's form."""

    node_status: dict[str, PromptNodeState] = Field(default_factory=dict)
    outputs: dict[str, JsonValue] | None = None
    error_info: ErrorInfo | None = None
    finished_at: datetime | None = None


class Executions(Model):
    """What runs and what waits."""

    running: list[PromptSummary]
    pending: list[PromptSummary]


class RunPage(Model):
    """A page of the run history; the last has fewer runs than its limit."""

    runs: list[Run]
    limit: int
    offset: int


class RunStarted(Model):
    """A run that was run once more has a new id."""

    run_id: str


class InputValues(Model):
    """Input values of a node that change."""

    input_values: dict[str, JsonValue]


class SystemStats(Model):
    """How busy the host is, and what is wrong with the audit log."""

    max_concurrent_workflows: int
    running_executions: int
    pending_executions: int
    audit_log_problem: str | None = None


class RunQuery(Model):
    """Which runs: `status` is one or several with commas between them; `since` and `until` are points in time (ISO
    8601) or ages such as `2h`; `text` is in the id or the workflow's name."""

    status: str | None = None
    workflow_id: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None
    limit: int | None = None
    offset: int | None = None


class OutputQuery(Model):
    """The node whose output is meant; without it, an output of the workflow's interface."""

    node_id: str | None = None


class Health(Model):
    """Whether all is well, and what is not."""

    status: str
    problems: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    """What an operator should look at, though the server takes work."""


class Deleted(Model):
    """Whether there was what was to be deleted."""

    deleted: bool


class PageQuery(Model):
    """A page of a list; each route says how long one is."""

    limit: int | None = Field(default=None, ge=0, le=999_999_999)
    offset: int | None = Field(default=None, ge=0, le=999_999_999)


class TaskQuery(PageQuery):
    """Which tasks: `status` is one or several with commas between them."""

    status: str | None = None
    tool: str | None = None
    principal: str | None = None


class WaitQuery(Model):
    """How many seconds the answer may wait for the end of the task."""

    wait: float = Field(default=0, ge=0, le=300)


class TaskPage(Model):
    """A page of tasks; the last has fewer than its limit."""

    tasks: list[ToolTask]
    limit: int
    offset: int


class ApprovalPage(Model):
    """A page of calls that wait for a decision."""

    approvals: list[ToolTask]
    limit: int
    offset: int


class ToolResults(Model):
    """What came of calls; of action text, the parsed text too."""

    results: list[ToolResult]
    parsed: ParsedText | None = None


class Models(Model):
    """The language models that are set up."""

    models: list[LlmModelInfo]


class AgentRunQuery(Model):
    """Which runs of agents: `statuses` are one or several with commas between them."""

    profile_id: str | None = None
    conversation_id: str | None = None
    statuses: str | None = None
    limit: int | None = Field(default=None, ge=1, le=1000)
    offset: int | None = Field(default=None, ge=0)


class MemoryQuery(Model):
    """The conversation, and where in it."""

    conversation_id: str
    branch: str | None = None
    leaf: str | None = None


class AfterQuery(Model):
    """Only what has a higher number."""

    after: int = Field(default=0, ge=0)


class BranchQuery(Model):
    """Which messages: a branch, those that lead to a `leaf`, the `last` so many."""

    branch: str | None = None
    leaf: str | None = None
    last: int | None = Field(default=None, ge=0, le=999_999_999)


class OfQuery(Model):
    """Right behind which message; without it, the first ones."""

    of: str | None = None


class IdQuery(Model):
    """The id under which it is kept."""

    id: str | None = None


class ReplaceQuery(Model):
    """Whether one that is there is replaced."""

    replace: bool = False


class RevisionQuery(Model):
    """The revision that it must have."""

    revision: str | None = None


class Woken(Model):
    """The agents that an event woke."""

    woken: list[str]
