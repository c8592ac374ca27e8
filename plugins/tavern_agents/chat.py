"""`tavern agent run | resume` and `tavern history swipe`: an agent in the terminal, its steps, and what waits for a
person."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from tavern_agents.api.agents import AgentReply, AgentRequest, AgentRun, AgentTrace
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_agents.commands import read_flags, trace_line
from tavern_agents.history_commands import head_of
from tavern_agents.pictures import read_picture
from tavern_agents.tracing import EVENT
from tavern_host import AGENT_RUNTIME, CommandOutput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.events import Gap
from tavern_host.contracts.wire import without_surrogates
from tavern_llm.api.llm import ChatImage
from tavern_tools.api.asking import ask_at_terminal
from tavern_tools.api.toolcalls import TaskStatus
from tavern_tools.api.tools import TOOL_MANAGER

_QUIET = frozenset({"reply", "error", "interrupted", "limit", "tool_running", "fragment"})
"""Steps that are not shown as lines: the end is shown as such."""


async def run_agent(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Give an agent a message, or talk to it line by line; fail where a message gets no reply."""
    chat = _Chat(context, arguments)
    message = arguments["message"]
    if message is None and not sys.stdin.isatty():
        message = (await asyncio.to_thread(sys.stdin.read)).strip()
    if message is not None:
        if not message.strip():
            raise InvalidInput("there is no message: give --message TEXT, or text on stdin")
        async for output in chat.to_result(chat.say(message)):
            yield output
        return
    await context.services.get(AGENT_RUNTIME).get(arguments["profile"])
    yield CommandOutput(kind="progress", text="Say something; an empty line, or Ctrl-D, ends the conversation.")
    while line := (await _ask("> ")).strip():
        async for output in chat.say(line):
            yield output
        if chat.reply is not None and chat.reply.outcome != "reply":
            yield CommandOutput(kind="progress", text=f"({chat.reply.outcome}: {chat.reply.error})")
    if chat.conversation is not None:
        again = f"tavern agent run {arguments['profile']} --conversation {chat.conversation}"
        yield CommandOutput(kind="progress", text=f"To continue this conversation: {again}")


async def resume_run(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Let a run resume, and show it until it ends."""
    chat = _Chat(context, arguments)
    resuming = context.services.get(AGENT_RUNTIME).resume(arguments["run"])
    async for output in chat.to_result(chat.follow(resuming)):
        yield output


async def swipe(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Let the agent that gave an answer give another one; fail where there is none."""
    histories, runtime = context.services.get(CHAT_HISTORY), context.services.get(AGENT_RUNTIME)
    history, branch, profile = (arguments[key] for key in ("history", "branch", "profile"))
    head = head_of(await histories.get_history(history), branch)
    parent = head if arguments["message"] is None else arguments["message"]
    (old,) = await histories.load_branch(history, leaf=parent, last=1)
    if profile is None:
        try:
            profile = (await runtime.get_run(old.run_id or "")).profile_id
        except NotFound:
            raise InvalidInput(f"the message {parent} is of no agent; say by --profile who is to answer") from None
    chat = _Chat(context, {})
    position = {"branch": branch, "parent_id": parent, "head": head}
    request = AgentRequest(profile_id=profile, message="", conversation_id=history, **position)
    async for output in chat.to_result(chat.follow(runtime.start(request))):
        yield output


async def _ask(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return await asyncio.to_thread(sys.stdin.readline)


class _Chat:
    """One conversation in a terminal."""

    def __init__(self, context: PluginContext, arguments: dict[str, Any]) -> None:
        self._context = context
        self._arguments = arguments
        self._runtime = context.services.get(AGENT_RUNTIME)
        self._streams = sys.stdout.isatty()
        self.conversation: str | None = arguments.get("conversation")
        self.reply: AgentReply | None = None

    async def say(self, message: str) -> AsyncIterator[CommandOutput]:
        """Show the agent's work on a message, and its reply."""
        fields: dict[str, Any] = {"profile_id": self._arguments["profile"], "message": without_surrogates(message)}
        fields["images"] = await self._pictures()
        if self._arguments.get("max_steps") is not None:
            fields["limits"] = {"steps": self._arguments["max_steps"]}
        if self.conversation is not None:
            fields |= {"conversation_id": self.conversation, "branch": self._arguments.get("branch")}
        async for output in self.follow(self._runtime.start(read_flags(AgentRequest, fields))):
            yield output

    async def _pictures(self) -> list[ChatImage]:
        """Return the pictures that the command names; they belong to its first message."""
        paths, self._arguments = self._arguments.get("image") or [], {**self._arguments, "image": []}
        return [await read_picture(self._context, Path(path)) for path in paths]

    async def follow(self, beginning: Awaitable[AgentRun]) -> AsyncIterator[CommandOutput]:
        """Show a run that begins or resumes, and its reply."""
        traces = self._context.events.subscribe(EVENT)
        run = await beginning
        self.conversation = run.conversation_id
        streamed = ""

        async def wait() -> AgentReply:
            try:
                return await self._runtime.wait(run.id)
            finally:
                await traces.close()

        waiting = asyncio.create_task(wait(), name=f"agent {run.id}")
        try:
            async for event in traces:
                if isinstance(event, Gap):
                    yield CommandOutput(kind="progress", text=f"({event.last - event.first + 1} steps are not shown)")
                    continue
                step = AgentTrace.model_validate(event.payload)
                if step.kind == "awaiting_approval":
                    async for output in self._decide(step):
                        yield output
                if step.agent_run_id != run.id:
                    continue
                if step.kind == "fragment" and self._streams:
                    restarted = step.data.get("restarted")
                    streamed = "" if restarted else streamed + step.text
                    yield CommandOutput(kind="chunk", text=f"\n[{restarted}]\n" if restarted else step.text)
                elif step.kind == "thinking":
                    streamed = ""
                if step.kind not in _QUIET:
                    yield CommandOutput(kind="progress", text=trace_line(step))
            self.reply = await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
                await self._runtime.interrupt(run.id)
        if self.reply.outcome == "reply" and self.reply.text != streamed.strip():
            yield CommandOutput(kind="text", text=self.reply.text)

    async def to_result(self, work: AsyncIterator[CommandOutput]) -> AsyncIterator[CommandOutput]:
        """Give the reply as JSON; fail where there is none."""
        async for output in work:
            yield output
        reply = self.reply
        assert reply is not None
        yield CommandOutput(kind="result", data=reply.to_json())
        if reply.outcome != "reply":
            yield CommandOutput(kind="failure", text=f"agent {reply.profile_id}: {reply.error}", exit_code=1)

    async def _decide(self, step: AgentTrace) -> AsyncIterator[CommandOutput]:
        """Ask the person at the terminal about a call, or what it asks; say how to decide where there is none."""
        task_id, asked = str(step.data.get("taskId")), step.data.get("question")
        if asked is not None:
            async for output in self._answer(task_id, step):
                yield output
            return
        shown = json.dumps(step.data.get("arguments"), ensure_ascii=False)
        if not sys.stdin.isatty():
            how = f"tavern approvals approve {task_id} (or refuse)"
            yield CommandOutput(kind="progress", text=f"{step.data.get('toolId')} {shown} waits: {how}")
            return
        question = f"{_who(step)} wants to call {step.data.get('toolId')} {shown}\n[y]es, [n]o, [e]dit? "
        said = (await _ask(question)).strip().lower()
        arguments: dict[str, JsonValue] | None = None
        if said.startswith("e"):
            try:
                arguments = json.loads(await _ask("arguments as JSON: "))
            except ValueError as error:
                yield CommandOutput(kind="progress", text=f"that is no JSON ({error}); the call is refused")
                said = "n"
        decision: Literal["approve", "refuse"] = "approve" if said[:1] in ("y", "e") else "refuse"
        person = operator_call()
        try:
            tools = self._context.services.get(TOOL_MANAGER)
            await tools.decide(task_id, decision, arguments=arguments, call=person)
        except TavernError as error:
            yield CommandOutput(kind="progress", text=f"not decided: {error.message}")

    async def _answer(self, task_id: str, step: AgentTrace) -> AsyncIterator[CommandOutput]:
        """Put a question to the person at the terminal, once more where the answer does not fit."""
        tools, person = self._context.services.get(TOOL_MANAGER), operator_call()
        if not sys.stdin.isatty():
            how = f"tavern approvals answer {task_id} (or refuse)"
            yield CommandOutput(kind="progress", text=f"{_who(step)} asks: {step.text.removeprefix('Asks: ')}\n{how}")
            return
        sys.stderr.write(f"{_who(step)} asks: ")
        while (task := await tools.task(task_id, call=person)).status is TaskStatus.AWAITING_APPROVAL:
            assert task.approval is not None and task.approval.question is not None
            try:
                answer = await ask_at_terminal(self._context, task_id, task.approval.question, _ask, person)
                if answer is None:
                    await tools.decide(task_id, "refuse", call=person)
                else:
                    await tools.decide(task_id, "approve", arguments={"answer": answer}, call=person)
            except TavernError as error:
                yield CommandOutput(kind="progress", text=f"not answered: {error.message}")


def _who(step: AgentTrace) -> str:
    """Return who asks: the agent, and those for which it works."""
    path = step.data.get("path")
    return " for ".join(map(str, reversed(path))) if isinstance(path, list) else step.profile_id
