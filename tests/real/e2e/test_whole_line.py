"""The whole line, as its users have it: a served project, a socket, a workflow, a tool, an agent with a model
behind an OpenAI-compatible server, an interrupt, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command_line import tavern
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin
from helpers.openai_server import OpenAiServer, answer, openai_server
from helpers.serve_process import Listener, Serving, serving
from helpers.tavern_project import MODELS, action, deliberation
from helpers.workflow_documents import function
from yarl import URL

GREETING = function(
    "Greeting",
    {
        "trim": "core:Trim",
        "merge": {
            "type": "core:TextMerge",
            "inputValues": {"separator": ", "},
            "inputConnectionOrders": {"text_inputs": ["e1", "e2"]},
        },
    },
    "in.name > trim.text",
    "in.words > merge.text_inputs__0",
    "trim.text > merge.text_inputs__1",
    "merge.merged_text > out.greeting",
    takes={"name": "STRING", "words": "STRING"},
    gives={"greeting": "STRING"},
)
GREETING["interfaceInputs"]["words"]["config"] = {"default": "Hello"}
WAIT = {"type": "core:Wait", "inputValues": {"value": 1, "seconds": 60}}
WAITING = function("Waiting", {"w": WAIT}, "w.value > out.value", takes={}, gives={"value": "INTEGER"})
KEEPER = {
    "id": "keeper",
    "name": "The keeper",
    "version": "1.0.0",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "think",
    "tool_ids_inventory": ["workflow:greeting"],
}
PROMPT = {
    "nodes": [
        {"id": "text", "fullType": "core:Text", "inputs": {"text": "  good evening "}},
        {"id": "trim", "fullType": "core:Trim"},
        {"id": "up", "fullType": "core:UpperCase"},
    ],
    "edges": [
        {"sourceNodeId": "text", "sourceHandle": "text", "targetNodeId": "trim", "targetHandle": "text"},
        {"sourceNodeId": "trim", "sourceHandle": "text", "targetNodeId": "up", "targetHandle": "text"},
    ],
    "outputInterfaceMappings": {"said": {"sourceNodeId": "up", "sourceSlotKey": "text"}},
}
WAIT_PROMPT = {"nodes": [{"id": "w", "fullType": "core:Wait", "inputs": {"seconds": 60}}], "edges": []}
FINAL = "__WORKFLOW_INTERFACE_OUTPUTS__"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiServer]:
    """Run a model that asks for the greeting tool, and replies when it has seen what the tool gave."""
    ask, seen = "greet ada", "good evening, ada"
    answers = [
        answer("asks", said=[ask], content=f"I will use the tool.\n\n{action('workflow:greeting', **ARGUMENTS)}"),
        answer("replies", said=[ask, seen], content="Ada was greeted."),
    ]
    with openai_server(tmp_path_factory.mktemp("model"), answers) as server:
        yield server


ARGUMENTS = {"name": " Ada ", "words": "Good evening"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with workflows, an agent (which model it has is not its business) and a plugin to review."""
    root = tmp_path / "inn"
    assert tavern("init", "--empty", root).code == 0
    for file, content in {
        "workflows/greeting.json": GREETING,
        "workflows/waiting.json": WAITING,
        "workflows/think.json": deliberation(),
        "agents/keeper.json": KEEPER,
    }.items():
        (root / file).write_text(json.dumps(content), encoding="utf-8")
    code = GREETS_IN_ITS_OWN_WAY.replace('"greeting": "Ahoy"', '"words": "Ahoy"')
    write_plugin(root / "plugins" / "ahoy", {"__init__.py": code}, **INTERCEPTING)
    return root


@pytest.fixture
def operator(operator_folders: Path, model: OpenAiServer) -> Path:
    """Set up the model as the operator does, in host.yaml."""
    config = operator_folders / "config"
    config.mkdir(parents=True)
    models = {"local": {"adapter": "openai", "base_url": model.base_url, "model": "gpt-4o-mini"}}
    (config / "host.yaml").write_text(yaml.safe_dump({"settings": {MODELS: models}}))
    return config


@asynccontextmanager
async def listening(site: Serving) -> AsyncIterator[Listener]:
    """Open a socket."""
    async with site.session.ws_connect(site.base + "/ws") as socket:
        yield Listener(socket)


async def test_the_whole_line(project: Path, operator: Path, model: OpenAiServer, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environment = {"TMPDIR": str(tmp_path / "tmp"), "TAVERN_TOKEN": "open sesame&c"}
    beside = tmp_path / "barn"
    assert (await asyncio.to_thread(tavern, "init", "--empty", beside)).code == 0
    options = ["--drain", "0.2", "--also", str(beside)]
    async with serving(project, environment, options) as site, listening(site) as page:
        assert [served["name"] for served in await site.get("/api/projects")] == ["inn", "barn"]
        await _the_token_of_the_operator(site)
        await _a_prompt_over_the_socket(page)
        await _a_prompt_over_http(site, page)
        await _a_tool_by_text(site)
        await _an_agent(site, page, model)
        await _an_interrupt(site, page)
        await _what_a_client_missed(site, page)
        await _a_grant_from_the_command_line(project, site, page)
        await _a_port_is_taken_once(project, site)

        await site.post("/api/prompt", WAIT_PROMPT)
        asked = asyncio.create_task(site.post("/api/tools/execute", {"toolId": "workflow:waiting"}))
        for _ in range(2):
            await page.until("NODE_EXECUTING", nodeId="w")
        children = Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children").read_text().split()
        code, err = await site.stop(signal.SIGINT)
        with pytest.raises(Exception):  # noqa: B017  # it may be answered with an error or cut off
            await asked

    assert (code, err) == (0, "")
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list((tmp_path / "tmp").iterdir()) == []
    left = [path.name for path in project.rglob("*") if path.suffix in (".tmp", ".lock", ".pid")]
    assert set(left) == {".opening.lock"}  # of each database, for those who open it; nobody holds it now
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", int(site.base.rpartition(":")[2]))


async def _the_token_of_the_operator(site: Serving) -> None:
    assert site.url.endswith("/?token=open%20sesame%26c")
    address = URL(site.url, encoded=True)
    async with site.session.get(address, headers={"Accept": "text/html"}) as page:
        assert (page.status, str(page.url)) == (200, f"{site.base}/")
        assert "tavern-host" in await page.text()


async def _a_prompt_over_the_socket(page: Listener) -> None:
    await page.socket.send_json({"type": "PROMPT_REQUEST", "payload": PROMPT})
    end = await page.until("EXECUTION_STATUS_UPDATE", status="complete")
    (accepted,) = [m for m in page.messages if m["type"] == "PROMPT_ACCEPTED_RESPONSE"]

    prompt_id = accepted["payload"]["promptId"]
    assert end["payload"]["promptId"] == prompt_id
    _check_events(page.of(prompt_id))


def _check_events(events: list[dict[str, Any]], *, again: bool = False) -> None:
    """Check that each node ended, in the order of the edges, that one is told to begin only before its end, and that
    the outputs came last. Where the same was run before, the nodes before the last one are told of all at once."""
    done = {e["payload"]["nodeId"]: e["payload"]["output"] for e in events if e["type"] == "NODE_COMPLETE"}
    cached = [node for e in events if e["type"] == "NODE_CACHED" for node in e["payload"]["nodeIds"]]
    statuses = [e["payload"]["status"] for e in events if e["type"] == "EXECUTION_STATUS_UPDATE"]

    own = ["text", "trim", "up"]
    assert [node for node in done if node in own] == (["up"] if again else own)
    assert {node for node in cached if node in own} == ({"text", "trim"} if again else set())
    assert again or done["trim"] == {"text": "good evening"}
    assert (done["up"], done[FINAL]) == ({"text": "GOOD EVENING"}, {"said": "GOOD EVENING"})
    assert (statuses[-2:], events[-1]["payload"]["status"]) == (["running", "complete"], "complete")
    order = [(e["type"], e["payload"].get("nodeId")) for e in events]
    for place, (kind, node) in enumerate(order):
        assert kind != "NODE_EXECUTING" or place < order.index(("NODE_COMPLETE", node))
    assert order.index(("NODE_COMPLETE", "up")) < order.index(("NODE_COMPLETE", FINAL))
    seqs = [e["seq"] for e in events]
    assert seqs == sorted(set(seqs))


async def _a_prompt_over_http(site: Serving, page: Listener) -> None:
    prompt_id = (await site.post("/api/prompt", PROMPT))["promptId"]
    await page.until("EXECUTION_STATUS_UPDATE", promptId=prompt_id, status="complete")

    _check_events(page.of(prompt_id), again=True)
    shown = await site.get(f"/api/prompt/{prompt_id}")
    assert (shown["status"], shown["outputs"]) == ("complete", {"said": "GOOD EVENING"})
    assert shown["nodeStatus"]["up"]["status"] == "complete"


async def _a_tool_by_text(site: Serving) -> None:
    text = f"Let me see.\n{action('workflow:greeting', name=' Grace ')}\nThat was it."
    done = await site.post("/api/tools/execute", {"text": text})

    assert [(r["toolId"], r["status"], r["structured"]) for r in done["results"]] == [
        ("workflow:greeting", "done", "Hello, Grace")
    ]
    assert "Let me see." in done["parsed"]["text"] and "REQUEST_TOOL" not in done["parsed"]["text"]


async def _an_agent(site: Serving, page: Listener, model: OpenAiServer) -> None:
    reply = await site.post("/api/agents/keeper/run", {"message": "Please greet Ada."})

    assert (reply["outcome"], reply["text"], reply["steps"]) == ("reply", "Ada was greeted.", 2), reply
    assert [result["structured"] for result in reply["toolResults"]] == ["Good evening, Ada"]
    assert model.hits() == {"asks": 1, "replies": 1}
    await page.until("AGENT_TRACE", kind="reply", agentRunId=reply["agentRunId"])
    traces = [m["payload"] for m in page.messages if m["type"] == "AGENT_TRACE"]
    assert [(trace["step"], trace["kind"]) for trace in traces] == [
        (0, "started"),
        (1, "thinking"),
        (1, "thought"),
        (1, "tool_call"),
        (1, "tool_running"),
        (1, "observation"),
        (2, "thinking"),
        (2, "reply"),
    ]
    assert traces[2]["text"] == "I will use the tool."
    assert "Good evening, Ada" in traces[5]["text"]


async def _an_interrupt(site: Serving, page: Listener) -> None:
    over_socket = (await site.post("/api/prompt", WAIT_PROMPT))["promptId"]
    await page.until("NODE_EXECUTING", promptId=over_socket, nodeId="w")
    assert [run["promptId"] for run in (await site.get("/api/executions"))["running"]] == [over_socket]
    await page.socket.send_json({"type": "INTERRUPT_REQUEST", "payload": {"promptId": over_socket}})
    await page.until("EXECUTION_STATUS_UPDATE", promptId=over_socket, status="interrupted")

    over_http = (await site.post("/api/prompt", WAIT_PROMPT))["promptId"]
    await page.until("NODE_EXECUTING", promptId=over_http, nodeId="w")
    assert (await site.delete(f"/api/interrupt/{over_http}"))["success"] is True
    await page.until("EXECUTION_STATUS_UPDATE", promptId=over_http, status="interrupted")
    assert (await site.get(f"/api/prompt/{over_http}"))["status"] == "interrupted"
    assert await site.get("/api/executions") == {"running": [], "pending": []}


async def _what_a_client_missed(site: Serving, page: Listener) -> None:
    seen = [m for m in page.messages if "seq" in m]
    async with site.session.ws_connect(f"{site.base}/ws?since={seen[0]['seq']}") as socket:
        again = [await socket.receive_json(timeout=60) for _ in seen[1:]]
    assert again == seen[1:]


async def _a_grant_from_the_command_line(project: Path, site: Serving, page: Listener) -> None:
    async def greet() -> Any:
        done = await site.post("/api/tools/execute", {"toolId": "workflow:greeting", "arguments": {"name": "Ada"}})
        return done["results"][0]["structured"]

    for command, state, greeting in (("grant", "started", "Ahoy, Ada"), ("revoke", "needs-review", "Hello, Ada")):
        assert await greet() != greeting
        assert (await asyncio.to_thread(tavern, "--project", project, "plugins", command, "ahoy")).code == 0
        await page.until("PLUGINS_CHANGED", name="ahoy", state=state)
        assert await greet() == greeting


async def _a_port_is_taken_once(project: Path, site: Serving) -> None:
    port = site.base.rpartition(":")[2]
    ran = await asyncio.to_thread(tavern, "--project", project, "serve", "--port", port)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error == f"Error: port {port} cannot be used (Address already in use); give another with --port"
