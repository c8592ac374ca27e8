"""The protocol's own clients as they come from the package registries: a2a-sdk 1 and 0.3 (Python), @a2a-js/sdk."""

from __future__ import annotations

import pytest
from helpers.registry_clients import node_passes, python_passes
from helpers.stub_llm import said

from tavern_host.testing.http import HttpClient
from tests.agents.agent_bench import AgentBench

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW = """
import asyncio, httpx
from a2a.client import ClientConfig, create_client
from a2a.types import CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageRequest, TaskState
from a2a.utils.errors import TaskNotFoundError

def asking(text, **more):
    return SendMessageRequest(
        message=Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text=text)], **more)
    )

async def main():
    async with httpx.AsyncClient(headers={"Authorization": "Bearer " + sys.argv[2]}, timeout=60) as web:
        for streaming in (False, True):
            client = await create_client(sys.argv[1], ClientConfig(httpx_client=web, streaming=streaming))
            events = [event async for event in client.send_message(asking("Hello?"))]
            assert events[0].HasField("task"), events
            task = await client.get_task(GetTaskRequest(id=events[0].task.id))
            assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
            assert task.artifacts[0].parts[0].text == "Hi there.", task
            assert [one.role for one in task.history] == [Role.ROLE_USER, Role.ROLE_AGENT]
            if streaming:
                pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
                assert "".join(piece.artifact.parts[0].text for piece in pieces) == "Hi there.", events
            more = [event async for event in client.send_message(asking("And?", context_id=task.context_id))]
            assert more[0].task.context_id == task.context_id
            for method, request in ((client.get_task, GetTaskRequest), (client.cancel_task, CancelTaskRequest)):
                try:
                    await method(request(id="nothing"))
                except TaskNotFoundError:
                    pass
                else:
                    raise AssertionError(method)
    print("done")

asyncio.run(main())
"""
OLD = """
import asyncio, httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TaskQueryParams, TaskState, TextPart

async def main():
    async with httpx.AsyncClient(headers={"Authorization": "Bearer " + sys.argv[2]}, timeout=60) as web:
        card = await A2ACardResolver(web, sys.argv[1]).get_agent_card()
        assert (card.name, card.protocol_version) == ("Keeper", "0.3.0"), card
        for streaming in (False, True):
            client = ClientFactory(ClientConfig(httpx_client=web, streaming=streaming)).create(card)
            message = Message(message_id="m", role=Role.user, parts=[Part(root=TextPart(text="Hello?"))])
            task = None
            async for event in client.send_message(message):
                task = event[0]
            assert task.status.state == TaskState.completed, task
            kept = await client.get_task(TaskQueryParams(id=task.id))
            assert kept.artifacts[0].parts[0].root.text == "Hi there.", kept
            said = "".join(part.root.text for one in task.artifacts for part in one.parts)
            assert said == "Hi there.", task
    print("done")

asyncio.run(main())
"""
NODE = """
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
const [url, token] = process.argv.slice(2);
const fetchImpl = (address, options = {}) => {
  const headers = new Headers(options.headers);
  headers.set("Authorization", `Bearer ${token}`);
  return fetch(address, { ...options, headers });
};
const factory = new ClientFactory({
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const client = await factory.createFromUrl(url + "/");
const parts = [{ content: { $case: "text", value: "Hello?" } }];
const request = { message: { messageId: "m", role: 1, parts } };
const sent = await client.sendMessage(request);
const whole = sent.artifacts[0].parts[0].content.value;
if (whole !== "Hi there.") throw new Error(JSON.stringify(sent));
let pieces = "";
for await (const event of client.sendMessageStream(request))
  if (event.payload.$case === "artifactUpdate") pieces += event.payload.value.artifact.parts[0].content.value;
if (pieces !== "Hi there.") throw new Error(pieces);
console.log("done");
"""


@pytest.mark.parametrize(("requirement", "program"), [("a2a-sdk>=1", NEW), ("a2a-sdk<0.4", OLD)])
async def test_clients_in_python(bench: AgentBench, web: HttpClient, requirement: str, program: str) -> None:
    bench.model(lambda request: said("Hi there.")).pieces = 3
    await python_passes(f"http://127.0.0.1:{web.port}/a2a/keeper", requirement, program)


async def test_the_client_for_node(bench: AgentBench, web: HttpClient) -> None:
    bench.model(lambda request: said("Hi there.")).pieces = 3
    await node_passes(f"http://127.0.0.1:{web.port}/a2a/keeper", "@a2a-js/sdk", NODE)
