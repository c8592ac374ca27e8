"""Placement loopback: a plugin in the host's process behaves as one in a process of its own would.

Each test says what a plugin, or somebody who calls it, notices of the boundary.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.forwarding import overriding
from helpers.repetition import Failures
from plugin_maker import host_with, make_plugin, module_of, problems_of, write

from tavern_host import EXECUTION_ENGINE, LLM, WORKFLOW_MANAGER, Host, HttpRequest, HttpResponse
from tavern_host.contracts import errors
from tavern_host.contracts.errors import ErrorInfo, InvalidInput, PluginFailure, TavernError, Vetoed, error_of
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.http import SocketMessage
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.server.plugin_routes import call_message, call_route
from tavern_host.testing.recorder import CallRecorder
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse

OVERRIDE = {"permissions": {"services": {"override": ["workflowManager"]}}}
BODY = """
    async def list_workflows(self):
        return KEPT["list"]

    async def parse(self, document):
        KEPT["document"] = document
        document["changed"] = True
        return await self.original.parse(document)

    async def check(self, document):
        raise KEPT["error"]
"""
OVERRIDING = overriding("WORKFLOW_MANAGER", BODY, head="KEPT = {}")


def loopback(project: Path, *plugins: Path, **options: Any) -> Host:
    return host_with(project, *plugins, placement="loopback", **options)


# --- which placement --------------------------------------------------------------------------------------


async def test_the_environment_says_where_plugins_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("processes", "loop back", "Loopback"):
        monkeypatch.setenv("TAVERN_PLACEMENT", text)
        with pytest.raises(InvalidInput, match="in-process, loopback or process"):
            Host(project)
    monkeypatch.setenv("TAVERN_PLACEMENT", "loopback")
    async with host_with(project, make_plugin(project.parent, "acme", OVERRIDING, **OVERRIDE)) as host:
        module_of().KEPT["list"] = ["no summary"]
        with pytest.raises(PluginFailure, match="its result is no wire value"):
            await host.services.get(WORKFLOW_MANAGER).list_workflows()
        others = [info for info in host.plugins() if info.name != "acme"]
        assert [info for info in others if info.state is not PluginState.STARTED or info.problems] == []


# --- hooks ------------------------------------------------------------------------------------------------


def intercepting(parent: Path, name: str, body: str, kind: str = "async def") -> Path:
    """Write a plugin that does this when it is asked about a run that names it."""
    code = f"""
from tavern_host import *
SEEN = []

@hookimpl
{kind} tavern_before_execute(request, call, context):
    SEEN.append(request)
    if "{name}" in request.metadata.get("on", []):
        {body}
"""
    return make_plugin(parent, name, code, hooked=["tavern_before_execute"])


async def run(host: Host, **metadata: Any) -> Any:
    return await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="w"), metadata=metadata))


async def test_a_hook_gets_values_of_its_own(project: Path) -> None:
    body = "request.metadata['list'].append(context.plugin)"
    plugins = [intercepting(project.parent, n, body, kind) for n, kind in (("acme", "def"), ("brew", "async def"))]
    values = [1]
    async with loopback(project, *plugins) as host:
        await run(host, list=values, on=["acme", "brew"])
        for name in ("acme", "brew"):
            assert module_of(name).SEEN[0].metadata["list"] == [1, name]
    assert values == [1]


UNSENDABLE = [
    ("return request.model_copy(update={'metadata': {'a': {1, 2}}})", ".metadata.a: expected JSON, found set"),
    ("return request.model_copy(update={'workflow_id': b'x'})", ".workflow_id: expected str or None, found bytes"),
    ("return {'metadata': {}}", "expected RunRequest, Veto or None, found dict"),
    ("class Mine(type(request)): pass\n        return Mine()", "expected RunRequest, Veto or None, found "),
    ("raise ValueError('boom')", "ValueError: boom"),
]


async def test_unsendable_answers_are_plugin_failures(project: Path) -> None:
    folders = [intercepting(project.parent, f"acme{n}", body) for n, (body, _) in enumerate(UNSENDABLE)]
    async with loopback(project, *folders) as host:
        with Failures() as failures:
            for folder, (body, message) in zip(folders, UNSENDABLE, strict=True):
                with failures.row(body):
                    with pytest.raises(Vetoed, match=f"{folder.name} failed in tavern_before_execute") as refused:
                        await run(host, on=[folder.name])
                    assert message in refused.value.message
                    assert any(message in problem for problem in problems_of(host, folder.name))
        (problem,) = host.plugin(folders[-1].name).problems
        assert (problem.file, problem.line) == (str(folders[-1] / "__init__.py"), 9)


# --- services ---------------------------------------------------------------------------------------------


async def test_services_exchange_values_and_not_objects(project: Path) -> None:
    async with loopback(project, make_plugin(project.parent, "acme", OVERRIDING, **OVERRIDE)) as host:
        workflows, document = host.services.get(WORKFLOW_MANAGER), {"name": "Tale"}
        parsed = await workflows.parse(document)
        assert module_of().KEPT["document"] is not document
        assert (document, parsed.model_extra) == ({"name": "Tale"}, {"changed": True})
        no_wire_value = r"the argument document is no wire value: \.a: expected JSON, found set"
        with pytest.raises(InvalidInput, match=no_wire_value):
            await workflows.parse({"a": {1}})
        with pytest.raises(InvalidInput, match="the argument workflow_id is no wire value: expected str, found int"):
            await workflows.get(5)
        assert problems_of(host) == [], "it is the caller's mistake"


ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, TavernError)]
FOREIGN: list[BaseException] = [
    ValueError("boom"),
    type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})(),
    type("Odd", (TavernError,), {"__init__": lambda self: None})(),
    type("Odd", (TavernError,), {"info": 5, "__init__": lambda self: None})(),
]


async def test_a_host_error_arrives_as_its_class(project: Path) -> None:
    async with loopback(project, make_plugin(project.parent, "acme", OVERRIDING, **OVERRIDE)) as host:
        workflows, kept = host.services.get(WORKFLOW_MANAGER), module_of().KEPT
        with Failures() as failures:
            for kind in ERRORS:
                with failures.row(kind.__name__):
                    raised = kept["error"] = kind("no such thing", plugin="who", near=["a", 1])
                    with pytest.raises(TavernError) as caught:
                        await workflows.check({})
                    assert (type(caught.value), caught.value.info) == (kind, raised.info)
                    assert caught.value is not raised
                    assert str(caught.value) == caught.value.message == "no such thing"
            for error in FOREIGN:
                with failures.row(type(error)):
                    kept["error"] = error
                    with pytest.raises(PluginFailure) as failed:
                        await workflows.check({})
                    assert (failed.value.info.code, failed.value.info.plugin) == ("plugin_error", "acme")
    own = ErrorInfo(code="acme_is_shut", message="come back tomorrow", retryable=True)
    assert (type(error_of(own)), error_of(own).info) == (TavernError, own), "a plugin's own code is kept"


async def test_cancelling_a_call_reaches_the_plugin(project: Path) -> None:
    waits = """import asyncio
        KEPT['began'].set()
        try: await asyncio.sleep(3600)
        finally: KEPT['ended'] = True"""
    code = OVERRIDING.replace('raise KEPT["error"]', waits)
    async with loopback(project, make_plugin(project.parent, "acme", code, **OVERRIDE)) as host:
        kept = module_of().KEPT
        kept["began"] = asyncio.Event()
        task = asyncio.create_task(host.services.get(WORKFLOW_MANAGER).check({}))
        await kept["began"].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kept["ended"]


# --- objects and streams ----------------------------------------------------------------------------------

ADAPTER = """
from tavern_host import *
from tavern_llm.api.llm import *

KEPT = {"closed": 0}

class Parrot:
    def __init__(self, options, context):
        KEPT["options"] = options
        options["seen"] = True

    async def complete(self, request, call):
        KEPT["request"] = request
        return KEPT["answer"]

    async def stream(self, request, call):
        try:
            for chunk in KEPT["chunks"]:
                KEPT["last"] = chunk
                yield chunk
        finally:
            KEPT["closed"] += 1

    async def close(self):
        pass

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name="parrot", handler=f"{__name__}:Parrot", network=False)]
"""
MODELS = {"extensions.tavern-llm.models": {"p": {"adapter": "parrot", "word": "hello"}}}
CHUNKS = [*(LlmChunk(text=text) for text in "abc"), LlmChunk(response=LlmResponse(text="abc", model="p"))]


def asking(text: str = "hi") -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)])


@pytest.fixture
def parrot(project: Path) -> Path:
    return make_plugin(project.parent, "acme", ADAPTER, hooked=["tavern_register_llm_adapters"])


async def test_described_objects_stay_behind_the_boundary(project: Path, parrot: Path) -> None:
    async with loopback(project, parrot, settings=MODELS) as host:
        kept, llm, request = module_of().KEPT, host.services.get(LLM), asking()
        kept["answer"] = LlmResponse(text="hello", model="p")
        answer = await llm.complete(request)
        assert answer == kept["answer"] and answer is not kept["answer"]
        assert kept["request"].messages == request.messages and kept["request"].messages is not request.messages
        assert kept["options"]["word"] == "hello"
        kept["answer"] = "hello"
        with pytest.raises(PluginFailure, match="expected LlmResponse, found str"):
            await llm.complete(request)
        assert MODELS["extensions.tavern-llm.models"]["p"] == {"adapter": "parrot", "word": "hello"}

        kept["chunks"] = CHUNKS
        stream = llm.stream(request)
        first = await anext(aiter(stream))
        assert first.text == "a" and first is not kept["last"]
        await stream.aclose()
        assert (kept["last"].text, kept["closed"]) == ("a", 1), "a stream ends with its reader"
        assert [chunk.text async for chunk in llm.stream(request)] == ["a", "b", "c", ""]
        kept["chunks"] = ["text"]
        with pytest.raises(PluginFailure, match="expected LlmChunk, found str"):
            await anext(aiter(llm.stream(request)))
        assert kept["closed"] == 3, "an item that cannot be sent ends it too"


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_an_observer_sees_what_a_stream_gave(project: Path, parrot: Path, placement: str) -> None:
    seen = CallRecorder()
    async with host_with(project, parrot, settings=MODELS, placement=placement, observer=seen) as host:
        kept = module_of().KEPT
        kept["chunks"] = CHUNKS
        whole = [chunk.text async for chunk in host.services.get(LLM).stream(asking())]
        stream = host.services.get(LLM).stream(asking())
        await anext(aiter(stream))
        await stream.aclose()
        kept["chunks"] = [LlmChunk(text="a"), "text"]
        with pytest.raises(PluginFailure):
            _ = [chunk async for chunk in host.services.get(LLM).stream(asking())]
    calls = seen.calls("llm.stream")
    assert [[chunk.text for chunk in call.result] for call in calls] == [whole, ["a"], ["a"]]
    assert [call.error and call.error.code for call in calls] == [None, None, "plugin_error"]
    assert all(call.is_over for call in calls)


# --- handlers ---------------------------------------------------------------------------------------------

HANDLERS = """
from tavern_host import *
from tavern_host.contracts.http import *

KEPT = {}

@hookimpl
def tavern_register_routes():
    return [
        RouteInfo(method="GET", path="/api/x/acme/a", handler=f"{__name__}:route"),
        MessageInfo(type="acme.ask", handler=f"{__name__}:message"),
    ]

@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="acme", help="A.", handler=f"{__name__}:command")]

async def route(request, context):
    request.headers["mine"] = "yes"
    return KEPT.get("response", HttpResponse(body=request.body))

async def message(message, context):
    return KEPT.get("replies", [SocketReply(type="acme.answer", payload=message.payload)])

async def command(arguments, context):
    arguments["list"].append(2)
    yield CommandOutput(kind="result", data=arguments)
    yield KEPT.get("output", CommandOutput(kind="text"))
"""


async def test_what_handlers_get_and_give_is_data(project: Path) -> None:
    hooked = ["tavern_register_routes", "tavern_register_commands"]
    async with loopback(project, make_plugin(project.parent, "acme", HANDLERS, hooked=hooked)) as host:
        kept, registered = module_of().KEPT, host.registrations
        route, _, _ = registered.find("GET", "/api/x/acme/a")
        request = HttpRequest(method="GET", path="/", body=b"\xff\x00", call=host.call())
        assert (await call_route(host, route, request)).body == b"\xff\x00"
        assert request.headers == {}
        kept["response"] = HttpResponse.model_construct(status="ok")
        with pytest.raises(PluginFailure, match="expected int, found str"):
            await call_route(host, route, request)

        asked = SocketMessage(type="acme.ask", payload={"a": [1]}, call=host.call())
        (reply,) = await call_message(host, registered.messages["acme.ask"], asked)
        assert reply.payload == {"a": [1]} and reply.payload is not asked.payload
        kept["replies"] = {"type": "acme.answer"}
        with pytest.raises(PluginFailure, match="expected a list of SocketReply, found dict"):
            await call_message(host, registered.messages["acme.ask"], asked)

        arguments = {"list": [1]}
        outputs = [output async for output in registered.commands["acme"].call(arguments)]
        assert (outputs[0].data, arguments) == ({"list": [1, 2]}, {"list": [1]})
        kept["output"] = "text"
        with pytest.raises(PluginFailure, match="expected CommandOutput, found str"):
            _ = [output async for output in registered.commands["acme"].call(arguments)]


# --- nodes ------------------------------------------------------------------------------------------------

NODES = """
from tavern_host import *
from tavern_host.contracts.wire import Model

SEEN = []

@node()
def make() -> Annotated[Any, Slot(key="it")]:
    return {"list": [1], "object": OBJECT}

class Kept(Model):
    name: str = "it"

OBJECT = Kept()

@node()
async def take(it: Any, more: Annotated[Any, Config()] = None) -> Annotated[str, Slot(key="text")]:
    SEEN.append(it)
    it["list"].append(2)
    return repr(it["list"])

@node()
def fail(it: Any) -> Annotated[str, Slot(key="text")]:
    raise ValueError("boom")
"""


def graph(*takers: str) -> Workflow:
    nodes = [{"id": "make", "type": "acme:Make"}, *({"id": f"n{i}", "type": t} for i, t in enumerate(takers))]
    slots = {"source": "make", "sourceHandle": "it", "targetHandle": "it"}
    edges = [{"id": f"e{i}", "target": f"n{i}", **slots} for i in range(len(takers))]
    return Workflow.model_validate({"name": "w", "nodes": nodes, "edges": edges})


async def test_each_node_gets_its_own_edge_values(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    acme = make_plugin(project.parent, "acme", "", nodes={"entry": "./nodes"})
    write(acme / "nodes.py", "from typing import Annotated, Any\n" + NODES)
    async with loopback(project, acme) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        done = await engine.run(RunRequest(workflow=graph("acme:Take", "acme:Take")))
        assert done.error is None
        assert [done.nodes[n].output for n in ("n0", "n1")] == [{"text": "[1, 2]"}] * 2
        module = sys.modules["tavern_plugins.acme.nodes"]
        assert [seen["object"] for seen in module.SEEN] == [module.OBJECT] * 2, "what has no codec stays in memory"

        error = (await engine.run(RunRequest(workflow=graph("acme:Fail")))).nodes["n0"].error
        assert (error.code, error.message, error.plugin) == ("plugin_error", "ValueError: boom", "acme")
        records = [r for r in caplog.records if r.levelno >= logging.WARNING and "n0" in r.getMessage()]
        assert len(records) == 1 and records[0].exc_info, "its traceback is logged"
