"""What an agent asks the person who uses a panel: a question of a run that this person began there, and its answer."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from pydantic import Field, JsonValue

from tavern_host import CallContext, PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.wire import Model
from tavern_panels.api.panels import PanelQuestion
from tavern_tools.api.projectfiles import PROJECT_FILES
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus
from tavern_tools.api.tools import TOOL_MANAGER

_MOST = 1000
"""How many of the latest calls that wait are looked through."""


class PanelAnswer(Model):
    """The body of `POST …/runs/{run}/answers`: which question, and the answer, for a file a Blob and its name; with
    `decline` there is none."""

    question: str = Field(max_length=200)
    answer: JsonValue = None
    file: Blob | None = None
    name: str = Field(default="file", min_length=1, max_length=200)
    decline: bool = False


async def question_of(run_id: str, call: CallContext, context: PluginContext) -> PanelQuestion | None:
    """Return the question of a run at this moment."""
    asked = TaskFilter(statuses=[TaskStatus.AWAITING_APPROVAL], limit=_MOST)
    for task in await context.services.get(TOOL_MANAGER).tasks(asked, call=call):
        approval = task.approval
        if run_id in (task.agent_run_id, task.run_id) and approval is not None and approval.question is not None:
            about: dict[str, Any] = dict(approval.question)
            return PanelQuestion(id=task.id, until=approval.expires_at, **about)
    return None


async def answer(run_id: str, said: PanelAnswer, call: CallContext, context: PluginContext) -> None:
    """Answer what a run asks, or decline. Raises `Conflict` where it does not ask that any more, `InvalidInput`."""
    question = await question_of(run_id, call, context)
    if question is None or question.id != said.question:
        raise Conflict("it does not ask that any more: it was answered, or its time is over")
    tools = context.services.get(TOOL_MANAGER)
    if said.decline:
        await tools.decide(question.id, "refuse", call=call)
        return
    given = said.answer
    if question.kind == "file":
        if said.file is None:
            raise InvalidInput("the answer is a file: give it as a Blob")
        name = PurePosixPath(said.name.replace("\\", "/")).name or "file"
        files = context.services.get(PROJECT_FILES)
        given = (await files.write_blob(f"answers/{question.id}/{name}", said.file, call=call)).path
    await tools.decide(question.id, "approve", arguments={"answer": given}, call=call)
