"""Tools as data: what plugins register."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model, OpenModel

ToolKind = Literal["workflow", "node", "service", "script"]


class ToolImplementation(OpenModel):
    """How a tool is carried out; which fields are used depends on `kind`.

    workflow: `workflow_id`; node: `node_type`; service: `service` and `method`; script: `command` or
    `script_path` with `language`. `timeout` is in milliseconds, as published.

    With `values` the method of a service carries out many tools: it is given these values and, as the one argument
    `arguments`, those of the call, and returns a `ToolOutput`. For tools that plugins offer.
    """

    kind: ToolKind
    workflow_id: str | None = None
    node_type: str | None = None
    service: str | None = None
    method: str | None = None
    values: dict[str, JsonValue] | None = None
    command: str | None = None
    script_path: str | None = None
    language: str | None = None
    timeout: float | None = None


class ToolCaching(Model):
    """Results are given again for equal arguments, for `seconds`: to the same principal, `shared` to all who may call
    the tool."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    shared: bool = False


class ToolRate(Model):
    """At most `calls` within any `seconds`, for each principal."""

    calls: int = Field(ge=1)
    seconds: float = Field(gt=0, allow_inf_nan=False)


class ToolDefinition(Model):
    """One tool, from either published form of `*.tool.json` or made from a node or a workflow.

    `parameters` and `output` are JSON Schemas. `source` says where it came from (a file, `node:TYPE`,
    `workflow:ID`), `plugin` who owns it (None for the project's own). `unavailable` is why it cannot be
    called now, e.g. `needs service scriptExecution`; a plugin may say so itself, also of all tools whose ids begin
    with `a/`, by a tool `a/*`.

    `is_async` (`async` in JSON): a call gives a task at once. `read_only`: it changes nothing; `idempotent`: making a
    call twice does no more than making it once; `volatile`: it gives something else each time. `timeout` is in
    milliseconds. `concurrency` is how many calls run at once. `requires_approval`: every call waits for a person, or
    those whose arguments the JSON Schema allows. `permissions` must be held by the plugin, `dependencies` (`tool:ID`,
    `service:NAME`, `node:TYPE`, `workflow:ID`) be there. Of the tools that are not `listed` only those are shown that
    are asked for by id.
    """

    id: str
    display_name: str = ""
    description: str = ""
    version: str = "0"
    implementation: ToolImplementation
    parameters: dict[str, JsonValue] = Field(default_factory=lambda: dict[str, JsonValue](type="object", properties={}))
    output: dict[str, JsonValue] | None = None
    config_schema: list[dict[str, JsonValue]] = Field(default_factory=list)
    security_context: dict[str, JsonValue] | None = None
    examples: list[dict[str, JsonValue]] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    is_async: bool = Field(default=False, alias="async")
    read_only: bool = False
    idempotent: bool = False
    volatile: bool = False
    cache: ToolCaching | None = None
    timeout: float | None = None
    rate_limit: ToolRate | None = None
    concurrency: int | None = None
    requires_approval: bool | dict[str, JsonValue] = False
    permissions: list[str] = Field(default_factory=list)
    dependencies: list[str] = Field(default_factory=list)
    plugin: str | None = None
    source: str = ""
    unavailable: str | None = None
    listed: bool = True

    @property
    def kind(self) -> ToolKind:
        """How the tool is carried out."""
        return self.implementation.kind
