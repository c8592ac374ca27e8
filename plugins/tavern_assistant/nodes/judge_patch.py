"""The node `core:JudgePatch`: whether the patch could be applied; else what the model is to mend."""

import asyncio
from typing import Annotated, Any, TypedDict

from tavern_assistant.api.assistant import ASSISTANT, UPDATE_PANEL, UPDATE_WORKFLOW
from tavern_assistant.deliberation.answers import MOST_CHARACTERS
from tavern_assistant.deliberation.outcome import judge
from tavern_assistant.deliberation.refusals import said
from tavern_assistant.state import State
from tavern_host import NodeContext, Slot, node
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.tools import TOOL_MANAGER


class Judged(TypedDict):
    """What the node gives."""

    is_done: Annotated[bool, Slot("Whether the model need not be asked again.")]
    messages: Annotated[
        list[Any],
        Slot("The conversation with the answer and what is wrong with it.", match_categories=("ChatHistory",)),
    ]
    response: Annotated[
        dict[str, Any],
        Slot("What is said to the creator, with the tokens of all rounds.", match_categories=("LlmOutput",)),
    ]


@node(type="JudgePatch", category="Assistant", display_name="Judge a patch", width=300, cached=False)
async def judge_patch(
    context: NodeContext,
    messages: Annotated[list[Any], Slot("The messages that the model was given.", match_categories=("ChatHistory",))],
    response: Annotated[dict[str, Any], Slot("The model's whole answer.", match_categories=("LlmOutput",))],
    answer: Annotated[dict[str, Any], Slot("What Read a patch made of it.")],
    results: Annotated[list[Any], Slot("What came of the call.", match_categories=("ToolResults",))],
    request: Annotated[str, Slot("What was asked for.")] = "",
    world_state: Annotated[dict[str, Any] | None, Slot("The open workflow, and what belongs to it.")] = None,
    before: Annotated[
        dict[str, Any] | None, Slot("The response of the round before.", match_categories=("LlmOutput",))
    ] = None,
) -> Judged:
    """Say what became of the patch, and publish a workflow that is proposed or changed."""
    world = world_state or {}
    if world.get("workflowId") is None and world.get("workflow") is not None and answer["operations"]:
        results = [await _checked(context, answer["operations"], world["workflow"])]
    found = await asyncio.to_thread(judge, request, world, response, answer, results, before or {})
    if found.update is not None and world.get("panelId") is not None:
        context.plugin.events.publish(UPDATE_PANEL, found.update)
    elif world.get("workflowId") is None:
        context.plugin.own(State).outcomes[str(world.get("conversationId"))] = found
    elif found.update is not None:
        context.plugin.events.publish(UPDATE_WORKFLOW, found.update)
    found.response["text"] = await _without_calls(context, found.response["text"])
    answered = str(response.get("text", ""))[:MOST_CHARACTERS]
    said_and_wrong = (("assistant", answered), ("user", found.mend))
    again = [] if found.is_done else [{"role": role, "content": text} for role, text in said_and_wrong]
    return {"is_done": found.is_done, "messages": [*messages, *again], "response": found.response}


async def _checked(context: NodeContext, operations: list[Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the patch for a workflow that is no file of the project, in the form of a tool's result."""
    try:
        patched = await context.plugin.services.get(ASSISTANT).propose_patch(
            operations, document=document, call=context.call
        )
    except TavernError as error:
        return {"status": "error", "error": {"message": error.message}}
    return {"status": "done", "structured": patched.to_json()}


async def _without_calls(context: NodeContext, text: str) -> str:
    """Return a text in which the runtime finds no call of a tool: what a workflow makes a model say calls nothing."""
    tools = context.plugin.services.get(TOOL_MANAGER)
    for shown in (text, text.replace("<", "<\u200b").replace("「", "「\u200b")):
        parsed = await tools.parse_text(shown)
        if not parsed.calls and not parsed.warnings:
            return shown
    return said("The answer is not shown: it has calls of tools in it.", text)
