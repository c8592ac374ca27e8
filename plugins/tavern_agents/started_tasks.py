"""The ends of asynchronous tools that an agent started: it reads of each once, in its next turn."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tavern_agents.conversation import Conversation
from tavern_agents.feedback import MAX_OBSERVATION, framed
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.toolcalls import ToolResult, ToolTask
from tavern_tools.api.tools import ToolManager

_MOST = 100
"""How many tasks are looked after for one run, the ones that were started last."""

_STARTED = re.compile(r"is at work, as task (task_[0-9a-f]{8,64});")
_TOLD = re.compile(r"The task (task_[0-9a-f]{8,64}) of \S+, which you started, has ended")
_RESULT = "system:task_result"


class StartedTasks:
    """The tasks that were started in a conversation, of whose ends its agent has not read."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}

    def read(self, conversation: Conversation) -> None:
        """Find what was started before, and not told, in what the agent read. A task that is another's is not shown to
        it, whatever a text says."""
        for kept in conversation.kept:
            if kept.message.role in ("tool", "user") and "task_" in kept.message.content:
                self._open |= dict.fromkeys(_STARTED.findall(kept.message.content))
                for told in _TOLD.findall(kept.message.content):
                    self._open.pop(told, None)

    def add(self, results: Iterable[ToolResult]) -> None:
        """Note what calls have started, and the ends that the agent asked for itself."""
        for result in results:
            found = result.structured
            if result.status == "pending" and result.task_id is not None:
                self._open[result.task_id] = None
            elif result.tool_id == _RESULT and isinstance(found, dict) and found.get("isFinished") is True:
                self._open.pop(str(found.get("taskId")), None)

    async def ended(self, tools: ToolManager, call: CallContext) -> list[ChatMessage]:
        """Return the messages by which an agent reads of the tasks that have ended since."""
        messages = list[ChatMessage]()
        for task_id in [*self._open][-_MOST:]:
            try:
                task = await tools.task(task_id, call=call)
            except NotFound:
                del self._open[task_id]
                continue
            if task.status.is_final:
                del self._open[task_id]
                messages.append(ChatMessage(role="user", content=framed(await _text(tools, task))))
        return messages


async def _text(tools: ToolManager, task: ToolTask) -> str:
    ended = f"The task {task.id} of {task.tool_id}, which you started, has ended ({task.status.value})."
    if task.result is None:
        return ended
    [one] = await tools.feedback([], [task.result], limit=MAX_OBSERVATION - len(ended) - 1)
    return f"{ended} {one.text}"
