"""Work whose end cannot be written, as on a full disk, is tried again; what nobody works on is not locked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers.stub_llm import said
from helpers.tavern_project import Tavern
from helpers.unwritable import cancelled_within, unwritable
from helpers.waiting import until

from tavern_agents.api.agents import AgentStatus
from tavern_host.contracts.errors import PluginFailure, ServiceUnavailable
from tavern_tools import State
from tavern_tools.api.tasks import NewTask
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest
from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench, scenes_behind, tool
from tests.agents.test_scenes import INN
from tests.agents.test_scenes import prepare as prepare_scenes

pytestmark = pytest.mark.asyncio(loop_scope="module")


def prepare(project: Tavern) -> None:
    prepare_scenes(project)
    project.write("scenes/inn.json", INN)
    project.write("tools/later.tool.json", {**tool("later", "told:Mark"), "async": True})


def tasks(bench: AgentBench) -> Any:
    return bench.host._manager.active["tavern-tools"].context.own(State).manager._caller.tasks


def tried_again(caplog: pytest.LogCaptureFixture) -> bool:
    return caplog.text.count("may not be written") > 2


@pytest.mark.parametrize(
    ("answer", "status"), [(said("Done."), "reply"), (PluginFailure("broken"), "error"), (None, "interrupted")]
)
async def test_the_end_of_an_agents_run_is_written_when_it_can_be(
    bench: AgentBench, caplog: pytest.LogCaptureFixture, answer: Any, status: str
) -> None:
    model, run = await bench.held(*filter(None, [answer]), conversation_id=status)
    stopping: asyncio.Task[Any] | None = None
    assert model.gate is not None
    async with unwritable(bench.state.store.database):
        if answer is None:
            stopping = asyncio.create_task(bench.runtime.interrupt(run.id))
        model.gate.set()
        await until(lambda: tried_again(caplog))
    await bench.ended(run)
    if stopping is not None:
        await stopping
    ended = (await bench.runtime.runs())[0]
    assert (ended.id, ended.status.value) == (run.id, status)
    assert (await bench.trace(run.id))[-1].kind == status
    bench.answers(said("And on."))
    assert (await bench.run(conversation_id=status)).text == "And on.", "the conversation is not locked"


async def test_a_run_that_cannot_be_stored_is_not_begun(bench: AgentBench) -> None:
    bench.answers(said("Before."))
    await bench.run()  # makes the store
    model = bench.answers(said("Now."))
    async with unwritable(bench.state.store.database):
        with pytest.raises(ServiceUnavailable):
            await bench.start(conversation_id="begun")
    assert model.asked == []
    assert (await bench.run(conversation_id="begun")).text == "Now."


async def test_a_run_whose_caller_is_gone_before_it_is_stored_is_not_begun(bench: AgentBench) -> None:
    bench.answers(said("Before."))
    await bench.run()  # makes the store
    model = bench.answers(said("Now."))
    stored = bench.state.store.database
    await cancelled_within(stored, "INSERT INTO runs", bench.start(conversation_id="gone"))
    (left,) = [run for run in await bench.runtime.runs() if run.conversation_id == "gone"]
    await bench.state.runtime.resume_abandoned()
    reply = await bench.ended(left)
    assert (reply.outcome, model.asked) == ("interrupted", [])
    assert (await bench.run(conversation_id="gone")).text == "Now.", "the conversation is not locked"


async def test_a_task_whose_caller_is_gone_before_it_is_stored_is_not_carried_out(bench: AgentBench) -> None:
    bench.marks()
    later = ToolCallRequest(tool_id="later", arguments={"text": "x"})
    first = await bench.tools.call(later)  # makes the store
    assert (await bench.tools.task(str(first.task_id), wait=9)).status is TaskStatus.DONE
    stored = tasks(bench)._store._database
    await cancelled_within(stored, "INSERT INTO tasks", bench.tools.call(later))
    left = (await bench.tools.tasks())[0]
    assert (await bench.tools.task(left.id, wait=9)).status is TaskStatus.CANCELLED
    assert bench.marks() == ["x"]


async def test_a_step_that_cannot_be_stored_ends_the_run_with_what_was_said(bench: AgentBench) -> None:
    model, run = await bench.held(said("", ("later", {"text": "x"})), conversation_id="step")
    assert model.gate is not None
    async with unwritable(bench.state.store.database):
        model.gate.set()
        await until(lambda: bench.state.runtime._loops[run.id].run.status.is_final)
    reply = await bench.ended(run)
    assert (reply.outcome, "may not be written" in str(reply.error)) == ("error", True)
    assert [step.kind for step in await bench.trace(run.id)][:2] == ["started", "thinking"]
    bench.answers(said("Resumed."))
    await bench.runtime.resume(run.id)
    assert (await bench.ended(run)).text == "Resumed."


async def test_a_run_of_this_host_that_nobody_works_on_is_taken_up(bench: AgentBench) -> None:
    bench.answers(PluginFailure("broken"))
    run = await bench.run(conversation_id="left")
    await bench.state.store.claim(run.agent_run_id)  # and no more than that
    bench.answers(said("Taken up."))
    await bench.state.runtime.resume_abandoned()
    assert (await bench.ended(run.agent_run_id)).text == "Taken up."
    assert (await bench.runtime.runs())[0].status is AgentStatus.REPLY


async def test_the_end_of_a_task_is_written_when_it_can_be(bench: AgentBench, caplog: pytest.LogCaptureFixture) -> None:
    call = ToolCallRequest(tool_id="later", arguments={"text": "late", "seconds": 5.0})
    task_id = (await bench.tools.call(call)).task_id or ""
    store = tasks(bench)._store

    async def has(status: TaskStatus) -> bool:
        return (await bench.tools.task(task_id)).status is status

    await until(lambda: has(TaskStatus.RUNNING))
    async with unwritable(store._database):
        await until(lambda: tried_again(caplog))
        assert await has(TaskStatus.RUNNING), "nothing is told before it is written"
    await until(lambda: has(TaskStatus.DONE))


async def test_a_task_of_this_host_that_nobody_works_on_is_begun(bench: AgentBench) -> None:
    call = ToolCallRequest(tool_id="later", arguments={"text": "first"})
    like = (await bench.tools.call(call)).task_id or ""
    store = tasks(bench)._store
    entry = (await store.get(like)).entry
    await store.add(NewTask("task_left", "later", entry, False, None, None), 100)  # whose caller went away meanwhile

    async def is_done() -> bool:
        return (await bench.tools.task("task_left")).status is TaskStatus.DONE

    await until(is_done)


async def test_a_scene_continues_when_it_can_be_written(bench: AgentBench, caplog: pytest.LogCaptureFixture) -> None:
    scenes = bench.host.services.get(SCENE_MANAGER)
    model = bench.model(lambda request: said("Good evening."))
    model.gate = asyncio.Event()
    run = await scenes.start("inn")
    await scenes.say(run.id, "Hello.")
    await until(lambda: model.asked)
    async with unwritable((await scenes_behind(bench)).store._database):
        model.gate.set()
        waiting = asyncio.create_task(scenes.wait(run.id))
        await until(lambda: tried_again(caplog))
    run = await waiting
    assert (run.problem, run.turns, run.wakes) == (None, 0, [])
    assert [one.message.content for one in await bench.histories.load(run.id)] == ["Hello.", *["Good evening."] * 2]
