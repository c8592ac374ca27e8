"""A plugin in a process of its own does what it does in the host's: each test goes through one kind of crossing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_files import write_whole
from helpers.waiting import until

from tavern_host import EXECUTION_ENGINE, LLM, SETTINGS, WORKFLOW_MANAGER, Host, HttpRequest, HttpResponse
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import PluginFailure, Vetoed
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.http import SocketMessage
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.workflows import Workflow
from tavern_host.server.plugin_routes import call_message, call_route
from tavern_isolation import child_process, supervisor
from tavern_llm.api.llm import ChatMessage, LlmRequest

CODE = """
import asyncio, os
from tavern_host import *
from tavern_host.contracts.http import *
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import *

class Shared:
    def __init__(self, context):
        self.runs = 0

@hookimpl
async def tavern_startup(context):
    print("it starts", flush=True)
    context.data_dir.joinpath("pid").write_text(str(os.getpid()))
    async def listen():
        async for event in context.events.subscribe("EXECUTION_STATUS_UPDATE"):
            context.events.publish("acme.heard", {"type": event.type})
    async def save():
        try:
            await asyncio.sleep(3600)
        finally:
            context.data_dir.joinpath("saved").write_text("yes")
    context.tasks.spawn(listen(), name="listen")
    context.tasks.spawn(save(), name="save")

@hookimpl
def tavern_shutdown(context):
    context.log.warning("it shuts down")

@hookimpl
async def tavern_before_execute(request, call, context):
    context.own(Shared).runs += 1
    asked = request.metadata.get("ask")
    if asked == "refuse":
        return Veto(reason="not today")
    if asked == "fail":
        raise ValueError("boom")
    if asked == "end":
        os._exit(3)
    if asked == "wait":
        context.events.publish("acme.waits", {})
        await asyncio.sleep(3600)
    if asked == "spin":
        while True: pass
    if asked == "again":
        engine = context.services.get(EXECUTION_ENGINE)
        await engine.run(RunRequest(workflow=Workflow(name="w"), metadata=request.metadata), call=call)
    said = {"pid": os.getpid(), "word": context.settings.get("word")}
    return request.model_copy(update={"metadata": {**request.metadata, **said}})

@hookimpl
def tavern_override_services():
    from .over import Over
    return [service_info(WORKFLOW_MANAGER, Over)]

@hookimpl
def tavern_register_routes():
    h = lambda name: f"{__name__}.web:{name}"
    return [RouteInfo(method="GET", path="/api/x/acme/echo", handler=h("echo")),
            RouteInfo(method="GET", path="/api/x/acme/events", handler=h("events")),
            RouteInfo(method="GET", path="/api/x/acme/bad", handler=h("bad")),
            MessageInfo(type="acme.ask", handler=h("ask"))]

@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="acme count", help="Count.", handler=f"{__name__}.web:count",
                        parameters=[CommandParameter(name="n", type="integer")])]

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name="parrot", handler=f"{__name__}.web:Parrot", network=False)]
"""
OVER = """
from tavern_host import *
from tavern_workflows.api.workflows import WorkflowManager

class Over(ServiceOverride[WorkflowManager]):
    async def list_workflows(self):
        found = await self.original.list_workflows()
        return [one.model_copy(update={"id": one.id + "!"}) for one in found]
"""
WEB = """
import asyncio
from tavern_host import *
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.http import *
from tavern_llm.api.llm import *

async def echo(request, context):
    blob = await context.blobs.put(request.body, holder="echo")
    assert await context.blobs.read(blob) == request.body
    listed = await context.services.invoke("workflowManager", "list_workflows", {}, call=request.call)
    return HttpResponse(data={"length": len(request.body), "hash": blob.hash, "names": [one["name"] for one in listed]})

async def events(request, context):
    async def items():
        try:
            for number in range(1000):
                yield ServerEvent(data=str(number))
        finally:
            context.events.publish("acme.left", {})
    return items()

async def bad(request, context):
    raise Conflict("come back later")

async def ask(message, context):
    return [SocketReply(type="acme.answer", payload=message.payload)]

async def count(arguments, context):
    for number in range(arguments["n"]):
        yield CommandOutput(kind="text", text=str(number))
    yield CommandOutput(kind="result", data=arguments)

class Parrot:
    def __init__(self, options, context):
        self.word = options["word"]

    async def complete(self, request, call):
        return LlmResponse(text=self.word + request.messages[0].content, model="p")

    async def stream(self, request, call):
        for sign in self.word:
            yield LlmChunk(text=sign)
        yield LlmChunk(response=await self.complete(request, call))

    async def close(self):
        pass
"""
NODES = """
import asyncio
from collections.abc import AsyncIterator
from typing import Any
from tavern_host import *

@node()
async def shout(text: str, context: NodeContext) -> str:
    context.progress(1, 2, "half")
    return text.upper()

@node()
async def letters(text: str) -> AsyncIterator[str]:
    for sign in text:
        yield sign

@node()
async def joined(signs: AsyncIterator[str]) -> str:
    return "-".join([sign async for sign in signs])

class Tensor:
    def __init__(self, sign):
        self.signs = [sign]

@node(cached=False)
async def tensor(text: str) -> Any:
    return [Tensor(text), {"and": Tensor("!")}]

@node(cached=False)
async def tensors(text: Any) -> AsyncIterator[Any]:
    first, second = text
    first.signs.append(second["and"].signs[0])
    for number in range(3):
        yield first

@node(cached=False)
async def summed(signs: AsyncIterator[Any]) -> str:
    found = [one async for one in signs]
    assert found[0] is found[2]
    return "".join(found[0].signs)

@node(cached=False)
async def ending(text: Any) -> str:
    import os
    os._exit(3)
"""
HOOKED = [
    "tavern_startup",
    "tavern_shutdown",
    "tavern_before_execute",
    "tavern_register_routes",
    "tavern_register_commands",
    "tavern_register_llm_adapters",
]
MODELS = {"extensions.tavern-llm.models": {"p": {"adapter": "parrot", "word": "hi"}}}


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    written(tmp_path)
    async with Host(tmp_path / "project", trust=["acme"], placement="process", settings=MODELS) as host:
        info = host.plugin("acme")
        assert info.state is PluginState.STARTED and not info.problems, info.problems
        yield host


def written(tmp_path: Path, **more: Any) -> None:
    """Write the plugin into a project."""
    manifest = {
        "permissions": {
            "services": {"override": ["workflowManager"], "use": ["executionEngine:execute"]},
            "events": {"subscribe": ["EXECUTION_STATUS_UPDATE"]},
        },
        "nodes": {"entry": "nodes.py"},
        "configOptions": [{"key": "extensions.acme.word", "type": "string", "label": "Word", "defaultValue": "ho"}],
    }
    files = {"__init__.py": CODE, "over.py": OVER, "web.py": WEB, "nodes.py": NODES}
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", files, HOOKED, **manifest, **more)


async def run(host: Host, **metadata: Any) -> Run:
    return await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="w"), metadata=metadata))


def pid(host: Host) -> int:
    """Return the id of the plugin's process."""
    return int((host.project.private / "plugins" / "acme" / "pid").read_text())


def running(host: Host) -> int | None:
    """Return the id of the plugin's process, as the host knows it."""
    process = host.plugin("acme").process
    return process.pid if process is not None else None


def is_there(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


# --- hooks, services, settings ---------------------------------------------------------------------------


async def test_a_hook_runs_in_another_process_and_with_the_present_settings(host: Host) -> None:
    first = await run(host, some=1)
    assert first.metadata == {"some": 1, "pid": pid(host), "word": "ho"} and pid(host) != os.getpid()
    await host.services.get(SETTINGS).save(SettingsChange(plugin="acme", values={"word": "hey"}), call=host.call())
    assert (await run(host)).metadata["word"] == "hey", "it knows before it is asked"


async def test_a_hook_gets_what_it_was_called_with_whatever_its_caller_does_while_a_process_starts(host: Host) -> None:
    metadata = {"some": [1]}
    os.kill(pid(host), signal.SIGKILL)
    await until(lambda: running(host) is None, "the host has seen its end")
    request = RunRequest(workflow=Workflow(name="w"), metadata=metadata)
    dispatcher = host._manager.dispatcher
    asked = asyncio.create_task(dispatcher.filter("tavern_before_execute", request, {"call": host.call()}))
    await asyncio.sleep(0)
    request.metadata["some"].append(2)  # type: ignore[union-attr]
    assert (await asked).metadata["some"] == [1]


async def test_what_a_hook_raises_denies_and_its_veto_says_why(host: Host) -> None:
    with pytest.raises(Vetoed, match="acme refused: not today"):
        await run(host, ask="refuse")
    with pytest.raises(Vetoed, match="acme failed in tavern_before_execute, so this is refused: .*ValueError: boom"):
        await run(host, ask="fail")


async def test_calls_that_never_end_in_each_other_are_refused(host: Host) -> None:
    with pytest.raises(Vetoed, match="are 16 deep in each other"):
        await run(host, ask="again")


async def test_an_override_stands_in_front_of_the_hosts_provider(host: Host) -> None:
    workflows = host.services.get(WORKFLOW_MANAGER)
    await workflows.save("tale", Workflow(name="Tale"), call=host.call())
    assert [one.id for one in await workflows.list_workflows()] == ["tale!"]
    assert (await workflows.get("tale")).id == "tale", "what it passes on is the host's"


async def test_what_it_may_not_do_is_refused_by_the_host(host: Host, tmp_path: Path) -> None:
    async with host_of(tmp_path / "other", "context.services.get('workflowManager').delete('tale')") as other:
        with pytest.raises(Vetoed, match="may not call workflowManager.delete: it needs the permission"):
            await run(other)
    async with host_of(tmp_path / "events", "asyncio.sleep(context.events.publish('NODE_X', {}) and 0)") as other:
        with pytest.raises(Vetoed, match="may not publish NODE_X events"):
            await run(other)


def host_of(root: Path, does: str) -> Host:
    """Return a host with a plugin that does this before each run."""
    code = f"""
import asyncio
from tavern_host import *

@hookimpl
async def tavern_before_execute(request, call, context):
    await {does}
"""
    write_whole(root / "plugins" / "acme", "acme", code, ["tavern_before_execute"])
    return Host(root, trust=["acme"], placement="process")


# --- routes, messages, commands, adapters ----------------------------------------------------------------


async def test_a_route_gets_a_body_and_keeps_a_blob(host: Host) -> None:
    route, _, _ = host.registrations.find("GET", "/api/x/acme/echo")
    body = bytes(range(256)) * 20_000
    answer = await call_route(host, route, HttpRequest(method="GET", path="/", body=body, call=host.call()))
    assert isinstance(answer, HttpResponse) and answer.body is not None
    assert f'"length": {len(body)}'.encode() in answer.body


async def test_a_route_sends_events_until_its_reader_leaves(host: Host) -> None:
    left = host.events.subscribe("acme.left")
    route, _, _ = host.registrations.find("GET", "/api/x/acme/events")
    events: Any = await call_route(host, route, HttpRequest(method="GET", path="/", call=host.call()))
    assert [(await anext(events)).data for _ in range(100)] == [str(number) for number in range(100)]
    await events.aclose()
    assert isinstance(await anext(aiter(left)), Event)


async def test_an_error_keeps_its_code(host: Host) -> None:
    route, _, _ = host.registrations.find("GET", "/api/x/acme/bad")
    with pytest.raises(PluginFailure, match="NameError: name 'Conflict'"):
        await call_route(host, route, HttpRequest(method="GET", path="/", call=host.call()))


async def test_messages_and_commands_are_answered(host: Host) -> None:
    asked = SocketMessage(type="acme.ask", payload={"a": [1]}, call=host.call())
    (reply,) = await call_message(host, host.registrations.messages["acme.ask"], asked)
    assert (reply.type, reply.payload) == ("acme.answer", {"a": [1]})
    outputs = [output async for output in host.registrations.commands["acme count"].call({"n": 3})]
    assert [output.text for output in outputs[:3]] == ["0", "1", "2"] and outputs[3].data == {"n": 3}


async def test_a_model_answers_whole_and_in_pieces(host: Host) -> None:
    llm, request = host.services.get(LLM), LlmRequest(messages=[ChatMessage(role="user", content="!")])
    assert (await llm.complete(request, call=host.call())).text == "hi!"
    assert [chunk.text async for chunk in llm.stream(request, call=host.call())] == ["h", "i", ""]


# --- nodes -----------------------------------------------------------------------------------------------


def graph(*types: str) -> Workflow:
    """Return a workflow of nodes in a row, the first of which is given a text."""
    nodes: list[dict[str, Any]] = [{"id": f"n{i}", "type": f"acme:{type}"} for i, type in enumerate(types)]
    nodes[0]["inputValues"] = {"text": "abc"}
    slots = [("result", "text"), ("result", "signs")]
    edges = [
        {
            "id": f"e{i}",
            "source": f"n{i}",
            "target": f"n{i + 1}",
            "sourceHandle": slots[i][0],
            "targetHandle": slots[i][1],
        }
        for i in range(len(types) - 1)
    ]
    return Workflow.model_validate({"name": "w", "nodes": nodes, "edges": edges})


async def test_nodes_run_stream_and_report(host: Host) -> None:
    progress = host.events.subscribe("NODE_PROGRESS")
    done = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=graph("Shout", "Letters", "Joined")))
    assert done.error is None and done.nodes["n2"].output == {"result": "A-B-C"}
    said = await anext(aiter(progress))
    assert isinstance(said, Event) and said.payload["nodeId"] == "n0"


async def test_a_node_acts_in_the_name_of_who_runs_it(tmp_path: Path) -> None:
    code = """
from tavern_host import *
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

@node(cached=False)
async def nested(text: str, context: NodeContext) -> str:
    request = RunRequest(workflow=Workflow(name=text))
    run = await context.plugin.services.get(EXECUTION_ENGINE).run(request, call=context.call)
    return str(run.principal)
"""
    manifest = {"nodes": {"entry": "nodes.py"}, "permissions": {"services": {"use": ["executionEngine:execute"]}}}
    write_whole(tmp_path / "plugins" / "acme", "acme", {"__init__.py": "", "nodes.py": code}, [], **manifest)
    async with Host(tmp_path, trust=["acme"], placement="process") as host:
        person = CallContext(principal=Principal(kind="user", id="ada"))
        request = RunRequest(workflow=graph("Nested"))
        done = await host.services.get(EXECUTION_ENGINE).run(request, call=person)
        assert done.error is None and done.nodes["n0"].output == {"result": "user:ada"}, done.error


async def test_many_that_need_a_node_in_a_new_process_wait_until_it_is_open_there(host: Host) -> None:
    engine, process = host.services.get(EXECUTION_ENGINE), pid(host)
    assert (await engine.run(RunRequest(workflow=graph("Shout")))).error is None
    os.kill(process, signal.SIGKILL)
    await until(lambda: not is_there(process), "it has ended")
    asked = [RunRequest(workflow=graph("Shout"), use_cache=False) for _ in range(50)]
    done = await asyncio.gather(*map(engine.run, asked))
    assert [one.error for one in done] == [None] * 50


async def test_values_without_a_codec_stay_in_the_process_of_their_nodes(host: Host) -> None:
    engine = host.services.get(EXECUTION_ENGINE)
    done = await engine.run(RunRequest(workflow=graph("Tensor", "Tensors", "Summed")))
    assert done.error is None and done.nodes["n2"].output == {"result": "abc!"}, done
    done = await engine.run(RunRequest(workflow=graph("Tensor", "Ending")))
    assert done.error is not None and done.error.code == "plugin_ended"


# --- tasks, the log, the end -----------------------------------------------------------------------------


async def test_its_tasks_are_listed_and_hear_events(host: Host) -> None:
    heard = host.events.subscribe("acme.heard")
    await run(host)
    assert isinstance(await anext(aiter(heard)), Event)
    assert {*host.owned("acme")["task"]} == {"listen", "save"}


async def test_what_it_prints_and_logs_reaches_the_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    await host.disable("acme")
    assert any("it shuts down" in record.message for record in caplog.records if record.name == "tavern.plugin.acme")


async def test_unloading_ends_its_tasks_and_its_process(host: Host) -> None:
    process, data = pid(host), host.project.private / "plugins" / "acme"
    assert int((data / "pid").read_text()) == process and is_there(process)
    await host.disable("acme")
    assert (data / "saved").read_text() == "yes", "a cancelled task may clean up"
    assert not is_there(process) and host.owned("acme") == {}


async def test_a_reload_has_a_new_process(host: Host) -> None:
    before = pid(host)
    await host.reload("acme")
    assert pid(host) != before
    await until(lambda: not is_there(before), "the earlier process has ended")
    assert (await run(host)).metadata["pid"] == pid(host)


@pytest.mark.parametrize("how", ["it exits", "it is killed"])
async def test_calls_in_flight_are_settled_when_the_process_ends(
    host: Host, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = pid(host)
    begun = aiter(host.events.subscribe("acme.waits"))
    waiting = [asyncio.create_task(run(host, ask="wait")) for _ in range(20)]
    for _ in waiting:
        await anext(begun)
    if how == "it exits":
        ending = asyncio.create_task(run(host, ask="end"))
        waiting.append(ending)
    else:
        os.kill(process, signal.SIGKILL)
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, Vetoed) and "refused" in one.message for one in ended), "a guard that is gone denies"
    assert (await run(host)).metadata["pid"] == pid(host) != process, "a new one took its place"
    how = "exit code 3" if how == "it exits" else "SIGKILL"
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert said == [f"the process of acme has ended ({how}); its last lines: it starts"]


async def test_a_child_that_ends_time_after_time_is_given_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "DELAYS", (0.01, 0.02))
    for _ in range(3):
        with pytest.raises(Vetoed, match="the process of acme has ended"):
            await run(host, ask="end")
    with pytest.raises(Vetoed, match="ended 3 times within 5 minutes and is not started again; `tavern plugins reload"):
        await run(host)
    said = [problem.message for problem in host.plugin("acme").problems]
    assert any("exit code 3" in message for message in said), said
    await host.reload("acme")
    assert (await run(host)).metadata["pid"] == pid(host)


async def test_a_child_that_spins_is_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PING_EVERY", 0.1)
    monkeypatch.setattr(child_process, "DEAF_AFTER", 1.0)
    process = pid(host)
    with pytest.raises(Vetoed, match="the process of acme has ended"):
        await run(host, ask="spin")
    assert (await run(host)).metadata["pid"] != process
