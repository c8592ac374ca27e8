"""The node `core:ReadPatch`: the operations in a model's answer, as a call of the tool that checks or applies them."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from tavern_assistant.deliberation.answers import read_answer
from tavern_host import NodeContext, Slot, node

PROPOSE, APPLY = "assistant:propose_patch", "assistant:apply_patch"


class Read(TypedDict):
    """What the node gives."""

    tool_call_requests: Annotated[
        list[Any],
        Slot(
            "The call of a tool for Execute tool; none where nothing is to change.",
            match_categories=("ToolCallRequests",),
        ),
    ]
    answer: Annotated[dict[str, Any], Slot("The reply, the operations, and what keeps them from being tried.")]


@node(type="ReadPatch", category="Assistant", display_name="Read a patch", width=300)
async def read_patch(
    context: NodeContext,
    text: Annotated[str, Slot("The text of the model's answer.", match_categories=("LlmOutput",))],
    request: Annotated[str, Slot("What was asked for; it becomes the reason in the history.")] = "",
    world_state: Annotated[dict[str, Any] | None, Slot("The open workflow, and what belongs to it.")] = None,
    step: Annotated[int, Slot("The number of the deliberation.")] = 1,
) -> Read:
    """Read the answer. In the mode `auto` the call applies the operations, else it checks them; so it does in a
    deliberation that is repeated, since the first one may have applied them before the host ended. A workflow without
    an id needs no call."""
    world, answer = world_state or {}, await asyncio.to_thread(read_answer, text)
    is_auto = world.get("mode") == "auto" and step == 1
    read = {**asdict(answer), "mode": "auto" if is_auto else "preview"}
    id, kind = world.get("workflowId"), "workflow"
    if world.get("panelId") is not None:
        id, kind = world["panelId"], "panel"
    if answer.problem or not answer.operations or id is None:
        return {"tool_call_requests": [], "answer": read}
    arguments: dict[str, Any] = {"id": id, "operations": answer.operations, "revision": world.get("revision")}
    arguments |= {"whole": True, "reason": request[:500]} if is_auto else {"whole": True}
    arguments |= {"kind": kind} if kind != "workflow" else {}
    return {"tool_call_requests": [{"toolId": APPLY if is_auto else PROPOSE, "arguments": arguments}], "answer": read}
