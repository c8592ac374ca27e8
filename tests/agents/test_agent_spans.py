"""Spans of OpenTelemetry about agents, their models and their tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api import spans
from tavern_llm.api.llm import LLM, ChatMessage, LlmRequest
from tests.agents.agent_bench import AgentBench, agent, agent_bench, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXPORTER = InMemorySpanExporter()


def prepare(project: Tavern) -> None:
    project.write("tools/mark.tool.json", tool("mark", "told:Mark"))
    project.write("tools/pay.tool.json", tool("pay", "told:Mark", requiresApproval=True))
    project.profile(tool_ids_inventory=["mark", "pay", "agent:helper"])
    project.write("agents/helper.json", agent("helper"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of this file, in a program that was set up to export spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    settings = {"extensions.tavern-llm.models": {"m": {"adapter": "told", "model": "m"}, "fast": {"alias": "m"}}}
    settings["extensions.tavern-llm.defaultModel"] = "m"  # type: ignore[assignment]
    async with agent_bench(tmp_path_factory.mktemp("spans"), prepare, settings=settings) as made:
        yield made
    provider.shutdown()


@pytest.fixture(autouse=True)
def exporter() -> Iterator[InMemorySpanExporter]:
    """Give what was exported in the test alone."""
    EXPORTER.clear()
    yield EXPORTER
    spans._api.cache_clear()


def exported() -> list[ReadableSpan]:
    return sorted(EXPORTER.get_finished_spans(), key=lambda span: span.start_time or 0)


def told(span: ReadableSpan) -> dict[str, Any]:
    return {key.removeprefix("gen_ai."): value for key, value in (span.attributes or {}).items()}


async def test_each_request_and_call_is_a_span_below_its_agent(bench: AgentBench) -> None:
    calls = said("", ("mark", {"text": "hush"}), ("agent:helper", {"message": "secret words"}))
    bench.answers(calls, said("inner secret", response_id="r2"), said("Done, hush."))
    reply = await bench.run("a secret", conversation_id="c1")
    found = exported()
    names = {span.context.span_id: span.name for span in found if span.context}
    assert [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in found] == [
        ("invoke_agent The keeper", None),
        ("chat m", "invoke_agent The keeper"),
        ("execute_tool mark", "invoke_agent The keeper"),
        ("execute_tool agent:helper", "invoke_agent The keeper"),
        ("invoke_agent Helper", "execute_tool agent:helper"),
        ("chat m", "invoke_agent Helper"),
        ("chat m", "invoke_agent The keeper"),
    ]
    by_id = {span.context.span_id: span for span in found if span.context}
    for span in found:
        above = by_id[span.parent.span_id] if span.parent else span
        assert (above.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (above.end_time or 0)
    assert len({span.context.trace_id for span in found if span.context}) == 1
    keeper, chat, mark, _, helper, inner, _ = map(told, found)
    (trace_id,) = {told(span)["tavern.trace.id"] for span in found}
    common = {"conversation.id": "c1", "tavern.trace.id": trace_id}
    ran = {"tavern.run.id": reply.agent_run_id, "tavern.run.status": "reply"}
    assert keeper == {
        **{"operation.name": "invoke_agent", "provider.name": "tavern", "agent.id": "keeper"},
        **{"agent.name": "The keeper", "usage.input_tokens": 20, "usage.output_tokens": 10, **ran, **common},
    }
    asked = {"operation.name": "chat", "provider.name": "told", "request.model": "m", **common}
    used = {"usage.input_tokens": 10, "usage.output_tokens": 5}
    assert chat == {**asked, "response.model": "m", "response.finish_reasons": ("stop",), **used}
    called = {"tool.name": "mark", "tool.call.id": calls.tool_calls[0].id, "tool.type": "function"}
    assert mark == {"operation.name": "execute_tool", **called, "tavern.tool.status": "done", **common}
    assert (helper["agent.id"], inner["response.id"]) == ("helper", "r2")
    assert helper["conversation.id"] == inner["conversation.id"] != "c1"
    assert [span.kind.name for span in found[:3]] == ["INTERNAL", "CLIENT", "INTERNAL"]
    whole = "".join(span.to_json() for span in found)
    assert "secret" not in whole
    assert "hush" not in whole


async def test_the_span_of_an_approved_call_is_below_that_of_the_decision(bench: AgentBench) -> None:
    bench.answers(said("", ("pay", {"text": "x"})), said("Paid."))
    run = await bench.start()
    (task,) = await bench.waiting()
    with trace.get_tracer("test").start_as_current_span("decides"):
        await bench.tools.decide(task.id, "approve")
    await bench.ended(run)
    found = {span.name: span for span in exported()}
    (decided, paid) = (found[name] for name in ("decides", "execute_tool pay"))
    assert paid.parent and decided.context
    assert paid.parent.span_id == decided.context.span_id


async def test_failures_have_a_type_and_quote_nothing(bench: AgentBench) -> None:
    bench.answers(written("tam", ("mork", {"text": "x"})), PluginFailure("refuses the secret", status=401))
    await bench.run("a secret")
    found = {span.name: span for span in exported()}
    types = {name: told(span).get("error.type") for name, span in found.items()}
    assert types == {"invoke_agent The keeper": "error", "execute_tool mork": "ToolNotFound", "chat m": "401"}
    assert {span.status.status_code.name for span in found.values()} == {"ERROR"}
    assert "secret" not in "".join(span.to_json() for span in found.values())


async def test_a_stream_that_its_reader_leaves_ends_its_span(bench: AgentBench) -> None:
    bench.answers(said("A long answer."))
    request = LlmRequest(messages=[ChatMessage(role="user", content="Hi.")], model="fast")
    stream = bench.host.services.get(LLM).stream(request)
    await anext(aiter(stream))
    await stream.aclose()  # type: ignore[attr-defined]
    (chat,) = exported()
    assert (told(chat)["request.model"], told(chat).get("error.type")) == ("fast", None)


async def test_what_was_said_is_held_where_that_is_set(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spans.CONTENT, "true")
    bench.answers(said("", ("mark", {"text": "x"})), said("Marked."))
    await bench.run("Mark it.")
    first, second = (told(span) for span in exported() if span.name == "chat m")
    parts = [{"type": "text", "content": "Mark it."}]
    assert json.loads(first["input.messages"])[1] == {"role": "user", "parts": parts}
    (call,) = json.loads(first["output.messages"])[0]["parts"]
    assert (call["type"], call["name"], call["arguments"]) == ("tool_call", "mark", '{"text": "x"}')
    (answer,) = json.loads(second["input.messages"])[-1]["parts"]
    assert (answer["type"], answer["id"]) == ("tool_call_response", call["id"])
    assert json.loads(second["output.messages"])[0]["parts"][0]["content"] == "Marked."


async def test_without_the_package_there_are_no_spans(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    spans._api.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    bench.answers(said("", ("mark", {"text": "x"})), said("Done."))
    assert (await bench.run()).text == "Done."
    assert exported() == []
