"""What somebody began ends when they may do it no more: every kind of work, whichever way the right was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures
from helpers.stub_llm import said
from helpers.tavern_project import Tavern
from helpers.waiting import let_pass, until
from helpers.workflow_documents import function, workflow_document

from tavern_accounts import commands
from tavern_agents.api.agents import AgentRequest, AgentStatus
from tavern_assistant.deliberation.requests import AssistantRequest, start
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import AUDIT, clock
from tavern_host.contracts.accounts import ACCOUNTS, Accounts, SettledWork, WorkFilter
from tavern_host.contracts.calls import Admission, CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.projects import Folders
from tavern_host.testing.http import served
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope
from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench, agent, agent_bench, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEEPER, PAY = Principal(kind="agent", id="keeper"), ToolScope(allowed=["pay"])
GOOD, FOREVER = "good evening", 1e7


def prepare(project: Tavern) -> None:
    mark = {"type": "told:Mark", "inputValues": {"text": "run", "seconds": FOREVER}}
    project.write("workflows/think.json", thinking("You keep the bar."))
    slots, edges = {"text": "STRING"}, ("mark.result > out.text",)
    drip = {"type": "core:ListToStream", "inputValues": {"items": ["a"] * 20, "delay": 60}}
    gives = {"items": {"dataFlowType": "STRING", "isStream": True}}
    nodes = {"drip": drip, "out": "core:GroupOutput"}
    dripping = workflow_document(nodes, "drip.stream > out.items", interfaceOutputs=gives)
    project.write("workflows/drip.json", {**dripping, "name": "Drip"})
    project.write("workflows/long.json", function("Long", {"mark": mark}, *edges, takes={}, gives=slots))
    for id, more in {"mark": {}, "pay": {"requiresApproval": True}, "later": {"async": True}}.items():
        project.write(f"tools/{id}.tool.json", tool(id, "told:Mark", **more))
    project.write("agents/keeper.json", agent("keeper", "mark"))
    project.write("agents/guest.json", agent("guest", "mark"))
    member = {"instance_id": "ada", "profile_id": "keeper"}
    scene = {"id": "inn", "name": "The inn", "agent_instances": [member], "turn_order": {"at_start": True}}
    project.write("scenes/inn.json", scene)


@dataclass
class Desk:
    """Who asks for work, and what they may."""

    bench: AgentBench
    accounts: Accounts

    async def ask(self, user: str) -> CallContext:
        """Return the context of a request that a new user sends with a token."""
        if user not in [one.name for one in await self.accounts.list_users()]:
            await self.accounts.add_user(user, GOOD)
        session = (await self.accounts.make_token(user, "test")).session.id
        asked = Admission(user=user, session=session, access="create", where="/api/prompt", at=clock.now())
        return self.bench.host.call(user, asked)

    async def lose(self, how: str, call: CallContext) -> list[SettledWork]:
        """Take a right from who sent a request; return what that settled."""
        assert call.admission is not None
        user, service = call.admission.user, self.accounts
        if how == "removed":
            return await service.remove_user(user)
        if how == "demoted":
            return (await service.set_role(user, "viewer")).settled
        if how == "token revoked":
            return (await service.end_sessions(user, call.admission.session)).settled
        if how == "password changed":
            return await service.set_password(user, "good morning")
        if how == "project closed":
            return await service.set_open(False)
        await service.set_member(user, "creator")
        return (
            (await service.set_member(user, "viewer")).settled
            if how == "demoted here"
            else await service.remove_member(user)
        )


WAYS = ("removed", "demoted", "token revoked", "password changed", "project closed", "demoted here", "no member")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """Give a host with users of its own, in which two runs run at a time."""
    place, limit = tmp_path_factory.mktemp("desk"), {"extensions.tavern-engine.maxConcurrentRuns": 2}
    folders = Folders(place / "config", place / "state", place / "data")
    async with agent_bench(place / "inn", prepare, folders=folders, settings=limit) as bench:
        yield Desk(bench, bench.host.services.get(ACCOUNTS))


async def begun(desk: Desk) -> None:
    """Return once what was asked for is at work."""
    await until(desk.bench.marks)
    await let_pass(1)
    desk.bench.marks()


Begun = tuple[Callable[[], Awaitable[Any]], list[SettledWork], str]
"""What tells how work stands, what is settled of it, and how it stands then."""


async def a_run(desk: Desk, call: CallContext) -> Begun:
    engine = desk.bench.host.services.get(EXECUTION_ENGINE)
    runs = [await engine.submit(RunRequest(workflow_id="long"), call=call) for _ in range(4)]
    await begun(desk)
    stood = [(await engine.get(run)).status for run in runs]

    async def stand() -> Any:
        return {(await engine.wait(run)).status for run in runs}

    counts = {"cancelled": stood.count(RunStatus.QUEUED), "stopped": stood.count(RunStatus.RUNNING)}
    return stand, [SettledWork(kind="runs", **counts)], "{<RunStatus.INTERRUPTED: 'interrupted'>}"


async def a_task(desk: Desk, call: CallContext) -> Begun:
    tools = desk.bench.tools
    arguments = {"text": "task", "seconds": FOREVER}
    calls = [ToolCallRequest(tool_id=id, arguments=arguments) for id in ("later", "pay")]
    # The creator's own calls are approved by being made, so that of an agent waits for somebody.
    keeper = desk.bench.host.call().model_copy(update={"admission": call.admission, "principal": KEEPER})
    tasks = [await tools.call(calls[0], call=call), await tools.call(calls[1], scope=PAY, call=keeper)]
    await begun(desk)

    async def stand() -> Any:
        return {(await tools.task(str(one.task_id), wait=5)).status for one in tasks}

    return stand, [SettledWork(kind="tasks", cancelled=1, stopped=1)], "{<TaskStatus.CANCELLED: 'cancelled'>}"


async def a_tool_call(desk: Desk, call: CallContext) -> Begun:
    request = ToolCallRequest(tool_id="mark", arguments={"text": "call", "seconds": FOREVER})
    calling = asyncio.create_task(desk.bench.tools.call(request, call=call))
    await begun(desk)

    async def stand() -> Any:
        result = await calling
        return {result.error.type if result.error else None}

    return stand, [SettledWork(kind="tool calls", stopped=1)], "{<ToolErrorType.CANCELLED: 'Cancelled'>}"


async def a_stream(desk: Desk, call: CallContext) -> Begun:
    """What the call of a tool gives once it is over."""
    request = ToolCallRequest(tool_id="workflow:drip")
    answer = await desk.bench.tools.call(request, scope=ToolScope(allowed=["workflow:*"], streams=True), call=call)
    handle = answer.content[0].uri
    await desk.bench.tools.read_stream(handle, max=1, call=call)

    async def stand() -> Any:
        read = await desk.bench.tools.read_stream(handle, call=call)
        return read.finished, read.error

    return stand, [SettledWork(kind="streams", stopped=1)], "(True, 'the stream was stopped by user:operator')"


async def an_agent(desk: Desk, call: CallContext) -> Begun:
    desk.bench.answers(said("", ("mark", {"text": "agent", "seconds": FOREVER})))
    run = await desk.bench.runtime.start(AgentRequest(profile_id="keeper", message="Go."), call=call)
    await begun(desk)

    async def stand() -> Any:
        await desk.bench.ended(run)
        return {(await desk.bench.runtime.get_run(run.id)).status}

    return stand, [SettledWork(kind="runs of agents", stopped=1)], "{<AgentStatus.INTERRUPTED: 'interrupted'>}"


async def the_assistant(desk: Desk, call: CallContext) -> Begun:
    model = desk.bench.answers(said("Nothing is to be changed."))
    model.gate = asyncio.Event()
    context = desk.bench.host._manager.active["tavern-assistant"].context
    run = await start(context, AssistantRequest(workflow_id="long", message="Go."), call)
    await until(lambda: model.asked)

    async def stand() -> Any:
        await desk.bench.ended(run)
        return {(await desk.bench.runtime.get_run(run.id)).status}

    return stand, [SettledWork(kind="runs of agents", stopped=1)], "{<AgentStatus.INTERRUPTED: 'interrupted'>}"


async def a_scene(desk: Desk, call: CallContext) -> Begun:
    scenes = desk.bench.host.services.get(SCENE_MANAGER)
    desk.bench.answers(said("", ("mark", {"text": "scene", "seconds": FOREVER})))
    run = await scenes.start("inn", call=call)
    await begun(desk)

    async def stand() -> Any:
        return {(await scenes.get_run(run.id)).status}

    return stand, [SettledWork(kind="scenes", stopped=1)], "{'ended'}"


WORK = (a_run, a_task, a_tool_call, a_stream, an_agent, the_assistant, a_scene)


async def test_work_ends_with_the_right_to_it(desk: Desk) -> None:
    with Failures() as failures:
        for work in WORK:
            for number, how in enumerate(WAYS):
                with failures.row(f"{work.__name__} {how}"):
                    await desk.accounts.set_open(True)
                    call = await desk.ask(f"{work.__name__.replace('_', '-')}-{number}")
                    stand, settled, ended = await work(desk, call)
                    assert sorted(await desk.lose(how, call), key=lambda one: one.kind) == settled
                    assert str(await stand()) == ended
        await desk.accounts.set_open(True)


async def test_what_others_began_goes_on(desk: Desk) -> None:
    ann, bob = await desk.ask("ann"), await desk.ask("bob")
    engine = desk.bench.host.services.get(EXECUTION_ENGINE)
    of_bob, of_operator = [await engine.submit(RunRequest(workflow_id="long"), call=c) for c in (bob, None)]
    of_ann = await engine.submit(RunRequest(workflow_id="long"), call=ann)
    assert await desk.lose("removed", ann) == [SettledWork(kind="runs", cancelled=1)]
    assert (await engine.wait(of_ann)).status is RunStatus.INTERRUPTED
    assert [(await engine.get(run)).status.value for run in (of_bob, of_operator)] == ["running", "running"]
    for run in (of_operator, of_bob):
        await engine.interrupt(run)


async def test_work_that_was_not_settled_asks_before_each_step(desk: Desk) -> None:
    """As where another process removed the user, or the operator's settings changed a role."""
    desk.bench.marks()
    call, engine = await desk.ask("cleo"), desk.bench.host.services.get(EXECUTION_ENGINE)
    model = desk.bench.answers(said("", ("mark", {"text": "cleo", "seconds": 0})), said("Done."))
    model.gate = asyncio.Event()
    run = await desk.bench.runtime.start(AgentRequest(profile_id="guest", message="Go."), call=call)
    await until(lambda: model.asked)
    *busy, queued = [await engine.submit(RunRequest(workflow_id="long"), call=one) for one in (None, None, call)]
    await begun(desk)
    accounts = desk.bench.host._manager.active["tavern-accounts"].providers[0].instance
    await accounts._store.remove("cleo")

    model.gate.set()
    reply = await desk.bench.ended(run)
    assert (reply.outcome, len(model.asked), desk.bench.marks()) == ("error", 1, [])
    for run_id in busy:
        await engine.interrupt(run_id)
    ended = await engine.wait(queued)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == (RunStatus.ERROR, "forbidden")
    refused = await desk.bench.tools.call(ToolCallRequest(tool_id="mark", arguments={"text": "cleo"}), call=call)
    assert refused.error is not None
    assert "may not do so any more" in refused.error.message


async def test_an_agent_in_the_middle_of_a_turn_makes_no_further_call(desk: Desk) -> None:
    desk.bench.marks()  # those of other tests
    call = await desk.ask("dan")
    model = desk.bench.answers(said("", ("mark", {"text": "dan", "seconds": 0})), said("Done."))
    model.gate = asyncio.Event()
    run = await desk.bench.runtime.start(AgentRequest(profile_id="guest", message="Go."), call=call)
    await until(lambda: model.asked)
    assert await desk.lose("removed", call) == [SettledWork(kind="runs of agents", stopped=1)]
    model.gate.set()
    await desk.bench.ended(run)
    assert (await desk.bench.runtime.get_run(run.id)).status is AgentStatus.INTERRUPTED
    assert desk.bench.marks() == []


async def test_another_user_of_the_name_is_not_whose_work_it_was(desk: Desk) -> None:
    call = await desk.ask("eve")
    await desk.accounts.remove_user("eve")
    await desk.accounts.add_user("eve", GOOD)
    assert call.admission is not None
    in_a_session = call.admission.model_copy(update={"session": "session_1"})
    assert [await desk.accounts.admits(one) for one in (call.admission, in_a_session)] == [False, False]


async def test_who_leaves_the_page_lets_work_go_on(desk: Desk) -> None:
    call = await desk.ask("fay")
    assert call.admission is not None
    in_a_session = call.admission.model_copy(update={"session": "session_1"})
    await desk.accounts.end_sessions("fay")
    assert await desk.accounts.admits(in_a_session)


async def test_stopping_ends_all_of_one_and_nothing_else(desk: Desk) -> None:
    service, call = desk.accounts, await desk.ask("gus")
    audit = desk.bench.host.services.get(AUDIT)
    with Failures() as failures:
        for kind, name, work, other in (
            ("user", "gus", a_run, a_tool_call),
            ("agent", "keeper", an_agent, a_tool_call),
            ("tool", "mark", a_tool_call, a_task),
            ("tool", "workflow:drip", a_stream, a_tool_call),
            ("plugin", "told", a_run, None),
        ):
            with failures.row(f"{kind} {name}"):
                before = None if other is None else await other(desk, await desk.ask("hal"))
                stand, settled, ended = await work(desk, call)
                which = WorkFilter.model_validate({"kind": kind, "name": name})
                assert await service.stop_work(which) == settled
                assert str(await stand()) == ended
                if before is not None:
                    left = await service.stop_work(WorkFilter(kind="user", name="hal"))
                    assert left == before[1]
                    await before[0]()
                entries = [one for one in await audit.tail(100) if one.action == "work.stopped"]
                assert (name, kind) in [(one.subject, one.details["kind"]) for one in entries[-2:]]


async def test_the_answer_to_a_request_says_what_was_settled(desk: Desk) -> None:
    await desk.accounts.add_user("ida", GOOD)
    token, bench = (await desk.accounts.make_token("ida", "test")).token, desk.bench
    async with served(bench.host) as client:
        headers = {"Authorization": f"Bearer {token}"}
        runs = []
        for _ in range(3):
            answer = await client.post("/api/prompt", headers=headers, json={"workflowId": "long"})
            runs.append((await answer.json())["promptId"])
        await begun(desk)
        answer = await client.request("DELETE", "/api/users/ida")
        said = await answer.json()
        assert said["settled"] == [{"kind": "runs", "cancelled": 1, "stopped": 2}]
        assert said["message"] == "The user is removed. Work that was settled: 1 runs cancelled, 2 runs stopped."
        answer = await client.post("/api/work/stop", json={"kind": "agent", "name": "keeper"})
        assert (answer.status, (await answer.json())["settled"]) == (200, [])
        assert (await client.post("/api/work/stop", json={"kind": "agent", "name": ""})).status == 400
    engine = bench.host.services.get(EXECUTION_ENGINE)
    assert {(await engine.wait(run)).status for run in runs} == {RunStatus.INTERRUPTED}


async def test_what_an_admin_began_by_a_command_ends_with_the_admin(desk: Desk) -> None:
    await desk.accounts.add_user("lee", GOOD, role="admin")
    token, body = (await desk.accounts.make_token("lee", "test")).token, {"workflow": "long"}
    async with served(desk.bench.host) as client:
        headers = {"Authorization": f"Bearer {token}"}
        command = asyncio.create_task(client.post("/api/commands/workflow%20run", headers=headers, json=body))
        await begun(desk)
        said = await (await client.request("DELETE", "/api/users/lee")).json()
        assert said["settled"] == [{"kind": "runs", "cancelled": 0, "stopped": 1}]
        assert "interrupted" in await (await command).text()


async def test_a_command_stops_work(desk: Desk) -> None:
    call = await desk.ask("jo")
    stand, _, ended = await an_agent(desk, call)
    context = desk.bench.host._manager.active["tavern-accounts"].context
    options = {"user": "", "agent": "keeper", "tool": "", "plugin": ""}
    outputs = [one async for one in commands.stop(options, context)]
    assert outputs[0].text == "Work that was settled: 1 runs of agents stopped."
    assert str(await stand()) == ended
    with pytest.raises(InvalidInput, match="by one of --user, --agent, --tool, --plugin"):
        await anext(commands.stop({**options, "tool": "mark"}, context))


async def test_a_host_that_serves_settles_what_others_have_changed(desk: Desk, tmp_path: Path) -> None:
    async with agent_bench(tmp_path / "barn", prepare, folders=desk.bench.host.folders, serving=True) as barn:
        call = await desk.ask("kim")
        call = barn.host.call("kim", call.admission)
        engine = barn.host.services.get(EXECUTION_ENGINE)
        run = await engine.submit(RunRequest(workflow_id="long"), call=call)
        await until(barn.marks)
        await desk.accounts.remove_user("kim")
        assert (await engine.wait(run)).status is RunStatus.INTERRUPTED
