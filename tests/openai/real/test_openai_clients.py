"""Clients of OpenAI's API as they come from the package registries: openai (Python, Node.js), LangChain, LiteLLM."""

from __future__ import annotations

import pytest
from helpers.registry_clients import node_passes, python_passes
from helpers.stub_llm import said

from tavern_host.testing.http import HttpClient
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import AgentBench

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTHON = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
assert "agent/keeper" in [model.id for model in client.models.list()]
assert client.models.retrieve("agent/keeper").id == "agent/keeper"
question = [{"role": "user", "content": "Hello?"}]
whole = client.chat.completions.create(model="agent/keeper", messages=question)
assert (whole.choices[0].message.content, whole.usage.total_tokens) == ("Hi there.", 15), whole
stream = client.chat.completions.create(
    model="m", messages=question, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hi there."
assert chunks[-1].usage.prompt_tokens == 10
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
called = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Look."}], tools=[tool])
assert called.choices[0].message.tool_calls[0].function.name == "look"
again = client.chat.completions.create(model="m", tools=[tool], messages=[
    {"role": "user", "content": "Look."}, called.choices[0].message,
    {"role": "tool", "tool_call_id": called.choices[0].message.tool_calls[0].id, "content": "sky"}])
assert again.choices[0].message.content == "I saw sky.", again
response = client.responses.create(model="m", input="Hello?")
assert response.output_text == "Hi there."
with client.responses.stream(model="m", input="Hello?") as events:
    kinds = [event.type for event in events]
    assert events.get_final_response().output_text == "Hi there.", kinds
for wrong, kind in ((dict(model="n"), openai.NotFoundError), (dict(model="m", logprobs=True), openai.BadRequestError)):
    try:
        client.chat.completions.create(messages=question, **wrong)
    except kind as error:
        assert error.code and error.type, error.body
    else:
        raise AssertionError(kind)
try:
    client.with_options(api_key="wrong").models.list()
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key"
else:
    raise AssertionError("a wrong key")
print("done")
"""
LANGCHAIN = """
import sys
from langchain_openai import ChatOpenAI
from langchain_core.tools import tool

@tool
def look(at: str) -> str:
    "Look at something."
    return at

model = ChatOpenAI(base_url=sys.argv[1], api_key=sys.argv[2], model="m")
assert model.invoke("Hello?").content == "Hi there."
assert "".join(chunk.content for chunk in model.stream("Hello?")) == "Hi there."
assert model.bind_tools([look]).invoke("Look.").tool_calls[0]["args"] == {"at": "sky"}
print("done")
"""
LITELLM = """
import sys, litellm
asked = dict(api_base=sys.argv[1], api_key=sys.argv[2], messages=[{"role": "user", "content": "Hello?"}])
whole = litellm.completion(model="openai/agent/keeper", **asked)
assert whole.choices[0].message.content == "Hi there."
parts = litellm.completion(model="openai/m", stream=True, **asked)
assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hi there."
print("done")
"""
NODE = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[2], apiKey: process.argv[3], maxRetries: 0 });
const messages = [{ role: "user", content: "Hello?" }];
const whole = await client.chat.completions.create({ model: "agent/keeper", messages });
if (whole.choices[0].message.content !== "Hi there.") throw new Error(JSON.stringify(whole));
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "m", messages, stream: true }))
  text += chunk.choices[0]?.delta?.content ?? "";
if (text !== "Hi there.") throw new Error(text);
const found = await client.chat.completions.create({ model: "n", messages }).catch((error) => error.status);
if (found !== 404) throw new Error(String(found));
console.log("done");
"""


def say(request: LlmRequest) -> LlmResponse:
    last = request.messages[-1]
    if last.role == "tool":
        return said(f"I saw {last.content}.")
    return said("", ("look", {"at": "sky"})) if last.content == "Look." else said("Hi there.")


@pytest.mark.parametrize(
    ("package", "program"), [("openai", PYTHON), ("langchain-openai", LANGCHAIN), ("litellm", LITELLM)]
)
async def test_clients_in_python(bench: AgentBench, web: HttpClient, package: str, program: str) -> None:
    bench.model(say)
    await python_passes(f"http://127.0.0.1:{web.port}/v1", package, program)


async def test_the_client_for_node(bench: AgentBench, web: HttpClient) -> None:
    bench.model(say)
    await node_passes(f"http://127.0.0.1:{web.port}/v1", "openai", NODE)
