"""The deliberation workflow of an agent: its inputs, its prompts, and the output that its text comes out of.

Works on documents and values; running them is the engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from pydantic import JsonValue

from tavern_agents.answers import read_answer
from tavern_agents.api.agents import AgentProfile
from tavern_agents.conversation import Conversation
from tavern_agents.feedback import framed
from tavern_agents.streamed_answers import streamed_output
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import Interrupted, InvalidInput, Misconfigured, NotFound, PluginFailure, TavernError
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmResponse, Transcript
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, StoredWorkflow

TEXT_OUTPUTS = ("response", "text")
"""Interface outputs that hold what the agent says, in order of precedence."""

SPOKEN_INPUTS = ("messages", "user_message")
"""Interface inputs of which a deliberation workflow needs at least one."""


_UNUSABLE: dict[str, type[TavernError]] = {
    NotFound.code: NotFound,
    InvalidInput.code: Misconfigured,
    Misconfigured.code: Misconfigured,
}
"""What it means for an agent that its workflow cannot be had, by the code of the reason."""


@dataclass(frozen=True)
class Situation:
    """What an agent knows when it deliberates.

    `conversation` is everything that was said, the results of calls among it; `message` what it works on, at the
    place `said_at` there; `observations` are the plain sentences about the calls since. `tools` are those that it may
    call as native function calling has them, `tools_text` documents them for a model that has none.

    `prompts` are the values of the workflow's nodes, `before` the texts that stand before all that was said, `note` the
    last message where it is not kept, with the texts of the `latest`, which volatile macros gave.
    """

    conversation: Transcript
    message: str
    said_at: int = 0
    observations: tuple[str, ...] = ()
    tools: tuple[dict[str, JsonValue], ...] = ()
    tools_text: str = ""
    step: int = 1
    prompts: list[JsonValue] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    latest: list[str] = field(default_factory=list)
    note: str = ""

    @classmethod
    def of(
        cls, said: Conversation, first: str, nudge: str | None, before: list[str], latest: list[str], **more: Any
    ) -> Situation:
        """Return the situation of an agent that works on the message with the id `first`."""
        note = "\n".join(map(framed, [*latest, *filter(None, [nudge])]))
        added = [ChatMessage(role="user", content=text) for text in (*before, note)]
        places = range(len(said.kept) - 1, -1, -1)  # it is one of the last
        at = next((place for place in places if said.kept[place].id == first), 0)
        message = said.kept[at].message.content if said.kept else ""
        return cls(
            conversation=said.messages(added[:-1], added[-1:] if note else []),
            message="\n\n".join([message, *before, *map(framed, latest)]),
            said_at=at + bool(said.summary) + len(before),
            before=before,
            latest=latest,
            note=note,
            **more,
        )


@dataclass(frozen=True)
class Deliberation:
    """A workflow that was found fit for deliberating; `output` is the interface output with the text, `streams` the one
    by which it comes piece by piece, `world_state` what the agent perceives besides what is said."""

    workflow_id: str
    workflow: Workflow
    output: str
    streams: str | None = None
    world_state: dict[str, JsonValue] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: StoredWorkflow) -> Deliberation:
        """Return a workflow as a deliberation. Raises `Misconfigured` where it takes no message or gives no text."""
        workflow = stored.workflow
        if not any(name in workflow.interface_inputs for name in SPOKEN_INPUTS):
            raise Misconfigured(
                f"the workflow {stored.id!r} cannot deliberate: it needs an interface input with the key "
                f"'messages' or 'user_message', found {_names(workflow.interface_inputs)}"
            )
        outputs = workflow.interface_outputs
        output = next((name for name in TEXT_OUTPUTS if name in outputs), None)
        if output is None and len(outputs) == 1:
            output = next(iter(outputs))
        if output is None:
            raise Misconfigured(
                f"the workflow {stored.id!r} cannot deliberate: it needs an interface output with the key "
                f"'response' or 'text', or only one output, found {_names(outputs)}"
            )
        return cls(stored.id, workflow.model_copy(update={"id": stored.id}), output)

    @cached_property
    def has_macros(self) -> bool:
        """Whether something in the values of the nodes may have to be filled in."""
        return "{{{" in json.dumps(self.prompts, ensure_ascii=False)

    @property
    def prompts(self) -> list[JsonValue]:
        """The values of each node, in whose texts macros may stand."""
        return [[node.input_values, node.config_values] for node in self.workflow.nodes]

    def with_prompts(self, prompts: list[Any]) -> Workflow:
        """Return the workflow with other values for its nodes, as `prompts` has them."""
        nodes = [
            node.model_copy(update={"input_values": inputs, "config_values": config})
            for node, (inputs, config) in zip(self.workflow.nodes, prompts, strict=True)
        ]
        return self.workflow.model_copy(update={"nodes": nodes})

    def with_model(self, model: str) -> Deliberation:
        """Return the deliberation with another model. Raises `InvalidInput` where no node of it names or asks one."""
        prompts: list[Any] = []
        found = False
        for node, values in zip(self.workflow.nodes, self.prompts, strict=True):
            inputs, config = (dict(one) for one in cast("list[dict[str, Any]]", values))
            if "model" in inputs or node.type.endswith(":LlmApiRequest"):
                inputs["model"] = model
            found = found or inputs.get("model") == model
            prompts.append([inputs, config])
        if not found:
            raise InvalidInput(f"the workflow {self.workflow_id!r} has no node whose model could be another")
        return replace(self, workflow=self.with_prompts(prompts))

    def inputs(self, situation: Situation) -> dict[str, JsonValue]:
        """Return the values of those interface inputs that the workflow has; messages as a `Transcript`."""
        known: dict[str, Callable[[], Any]] = {
            "messages": lambda: situation.conversation,
            "user_message": lambda: situation.message,
            "history": lambda: Transcript(situation.conversation[: situation.said_at]),
            "observations": lambda: "\n\n".join(situation.observations),
            "step": lambda: situation.step,
            "tools": lambda: list(situation.tools),
            "tools_text": lambda: situation.tools_text,
            "world_state": lambda: self.world_state,
        }
        return {
            name: _as_text(known[name]()) if slot.data_flow_type is DataFlowType.STRING else known[name]()
            for name, slot in self.workflow.interface_inputs.items()
            if name in known
        }

    def answer(self, outputs: dict[str, JsonValue]) -> LlmResponse:
        """Return the agent's response: the answer of a model as it is, or a text. Raises `TavernError` for neither."""
        value = outputs.get(self.output)
        if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("text"), str)):
            return read_answer(value, f"the output {self.output!r} of the workflow {self.workflow_id!r}")
        found = "empty" if value is None else json_type(value)
        raise TavernError(f"the workflow {self.workflow_id!r} gave no text: its output {self.output!r} is {found}")

    @property
    def takes_tools(self) -> bool:
        """Whether the workflow takes the tools as native function calling has them."""
        return "tools" in self.workflow.interface_inputs


async def deliberation_of(
    context: PluginContext, profile: AgentProfile, world_state: dict[str, JsonValue]
) -> Deliberation:
    """Return the deliberation of an agent. Raises `NotFound` and `Misconfigured` with the field of the profile."""
    reference = profile.core_deliberation_workflow_id
    try:
        found = Deliberation.of(await context.services.get(WORKFLOW_MANAGER).get(reference))
        streams = await streamed_output(context, found.workflow, found.output)
        return replace(found, world_state=world_state, streams=streams)
    except TavernError as error:
        kind = _UNUSABLE.get(error.info.code)
        if kind is None:
            raise
        where = f"the agent {profile.id!r} (core_deliberation_workflow_id: {reference!r})"
        raise kind(f"{where}: {error.message}", agent=profile.id, workflow=reference) from None


def failure_of(run: Run, agent: str) -> TavernError | None:
    """Return why a deliberation gave nothing; None where it is complete."""
    if run.status is RunStatus.COMPLETE:
        return None
    if run.status is RunStatus.INTERRUPTED:
        return Interrupted(f"the deliberation of {agent!r} was interrupted (run {run.id})")
    reason = run.error.message if run.error is not None else f"it ended as {run.status.value}"
    details = run.error.details if run.error is not None else {}
    known: dict[str, Any] = {key: details[key] for key in ("overflow", "partial_text") if key in details}
    return PluginFailure(f"the deliberation of {agent!r} failed (run {run.id}): {reason}", **known)


def _as_text(value: Any) -> str:
    value = value.plain() if isinstance(value, Transcript) else value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _names(slots: dict[str, Any]) -> str:
    return ", ".join(repr(name) for name in slots) or "none"
