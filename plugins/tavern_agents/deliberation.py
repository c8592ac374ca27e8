"""The deliberation workflow of an agent: what it is given, with which prompts, and where its text comes out.

Works on documents and values; running them is the engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from tavern_agents.answers import read_answer
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.contracts.llm import ChatMessage, LlmResponse
from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.workflows import StoredWorkflow, Workflow

TEXT_OUTPUTS = ("response", "text")
"""Interface outputs that hold what the agent says, in order of precedence."""

SPOKEN_INPUTS = ("messages", "user_message")
"""Interface inputs of which a deliberation workflow needs at least one."""


@dataclass(frozen=True)
class Situation:
    """What an agent knows when it deliberates.

    `conversation` is everything that was said, the results of calls among it; `message` what it works on, at the
    place `said_at` there; `observations` are the plain sentences about the calls since. `tools` are those that it may
    call as native function calling has them, `tools_text` documents them for a model that has none.
    """

    conversation: tuple[ChatMessage, ...]
    message: str
    said_at: int = 0
    observations: tuple[str, ...] = ()
    tools: tuple[dict[str, JsonValue], ...] = ()
    tools_text: str = ""
    step: int = 1


@dataclass(frozen=True)
class Deliberation:
    """A workflow that was found fit for deliberating; `output` is the interface output with the text."""

    workflow_id: str
    workflow: Workflow
    output: str

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

    def inputs(self, situation: Situation) -> dict[str, JsonValue]:
        """Return the values of those interface inputs that the workflow has."""
        known: dict[str, Callable[[], Any]] = {
            "messages": lambda: _as_json(situation.conversation),
            "user_message": lambda: situation.message,
            "history": lambda: _as_json(situation.conversation[: situation.said_at]),
            "observations": lambda: "\n\n".join(situation.observations),
            "step": lambda: situation.step,
            "tools": lambda: list(situation.tools),
            "tools_text": lambda: situation.tools_text,
        }
        return {
            name: _as_text(known[name]()) if _is_text(slot.data_flow_type) else known[name]()
            for name, slot in self.workflow.interface_inputs.items()
            if name in known
        }

    def answer(self, outputs: dict[str, JsonValue]) -> LlmResponse:
        """Return what the agent said: the answer of a model as it is, or a text. Raises `TavernError` for neither."""
        value = outputs.get(self.output)
        if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("text"), str)):
            return read_answer(value, f"the output {self.output!r} of the workflow {self.workflow_id!r}")
        raise TavernError(
            f"the workflow {self.workflow_id!r} gave no text: its output {self.output!r} is {_kind(value)}"
        )

    @property
    def takes_tools(self) -> bool:
        """Whether the workflow takes the tools as native function calling has them."""
        return "tools" in self.workflow.interface_inputs


def _as_json(messages: Sequence[ChatMessage]) -> list[JsonValue]:
    return [message.to_json() for message in messages]


def _is_text(flow: DataFlowType) -> bool:
    return flow is DataFlowType.STRING


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _names(slots: dict[str, Any]) -> str:
    return ", ".join(repr(name) for name in slots) or "none"


def _kind(value: JsonValue) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return "empty" if value is None else names.get(type(value), type(value).__name__)
