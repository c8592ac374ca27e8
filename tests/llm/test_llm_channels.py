"""Retries, fall-over between channels, limits and budgets of models, at real servers and in held time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.model_server import ModelServer, Plan, breaks_off, model_server, refuses, says
from helpers.repetition import Failures, refused
from helpers.waiting import until

from tavern_host import LLM, CallContext, Host, Principal, clock
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import LimitReached, Misconfigured, NotFound, PluginFailure, TavernError
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest

MODELS = "extensions.tavern-llm.models"
BUDGETS = "extensions.tavern-llm.budgets"
HOUR = 3600.0


@pytest.fixture
async def servers() -> AsyncIterator[list[ModelServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(model_server()) for _ in range(2)]


def entry(server: ModelServer, **more: Any) -> dict[str, Any]:
    return {"adapter": "openai", "base_url": server.base_url, "model": "tiny", **more}


def ask(text: str = "hello", model: str | None = "m") -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)], model=model)


def by(principal: str, **more: Any) -> CallContext:
    return CallContext(principal=Principal(kind="agent", id=principal), **more)


async def asked(host: Host, call: CallContext | None = None, model: str = "m") -> str:
    """Return the answer, or the code and HTTP status of the failure."""
    try:
        return (await host.services.get(LLM).complete(ask(model=model), call=call)).text
    except TavernError as error:
        return f"{error.info.code} {error.info.details.get('status', '')}".strip()


async def streamed(host: Host, model: str) -> tuple[list[LlmChunk], TavernError | None]:
    chunks: list[LlmChunk] = []
    try:
        async for chunk in host.services.get(LLM).stream(ask(model=model)):
            chunks.append(chunk)
    except TavernError as error:
        return chunks, error
    return chunks, None


def text_of(chunks: list[LlmChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


# --- retries --------------------------------------------------------------------------------------

# what the server does; what comes of it; how long is waited, where that is said; how many requests are sent
RETRIES: list[tuple[str, list[Plan], str, float | None, int]] = [
    ("429 for a minute, as the server says", [refuses(429, retry_after=10)] * 6, "Hello.", 60, 7),
    ("429 for ever", [refuses(429, retry_after=10)] * 20, "plugin_error 429", 120, 13),
    ("503 with a time", [refuses(503, retry_after=3)], "Hello.", 3, 2),
    ("429 without a time", [refuses(429)] * 5, "Hello.", None, 6),
    ("429 that asks for no pause", [refuses(429, retry_after=0)] * 5, "Hello.", None, 6),
    ("500 twice", [refuses(500)] * 2, "Hello.", None, 3),
    ("500 three times", [refuses(500)] * 3, "plugin_error 500", None, 3),
    ("502 with a time", [refuses(502, retry_after=9)], "Hello.", 9, 2),
    ("connection broken twice", [breaks_off()] * 2, "Hello.", None, 3),
    ("longer than anybody waits", [refuses(429, retry_after=3600)], "plugin_error 429", 0, 1),
    ("wrong request", [refuses(400)], "plugin_error 400", 0, 1),
    ("wrong key", [refuses(401)], "plugin_error 401", 0, 1),
]


async def test_failures_that_pass_are_retried(project: Path, held_clock: HeldClock, servers: list[ModelServer]) -> None:
    server = servers[0]
    names = [name for name, *_ in RETRIES]
    settings = {MODELS: {name: entry(server) for name in [*names, "busy", "late", "always"]}}
    async with Host(project=project, settings=settings) as host:
        llm = host.services.get(LLM)
        with Failures() as failures:
            for name, plans, expected, waited, requests in RETRIES:
                with failures.row(name):
                    server.plans, began = list(plans), clock.monotonic()
                    server.bodies.clear()
                    assert await asked(host, model=name) == expected
                    assert len(server.bodies) == requests
                    due = sum(min(20, 2**attempt) for attempt in range(requests - 1))
                    expected_wait = pytest.approx(due, rel=0.25) if waited is None else pytest.approx(waited, abs=0.1)
                    assert clock.monotonic() - began == expected_wait

        server.plans = [refuses(429, retry_after=600)]
        server.bodies.clear()
        with pytest.raises(PluginFailure) as caught:
            await llm.complete(ask(model="busy"))
        assert (caught.value.info.details, caught.value.info.retryable) == ({"status": 429, "retry_after": 600}, True)
        with pytest.raises(LimitReached, match="the servers of the model 'busy' are busy for another 600 s") as others:
            await llm.complete(ask(model="busy"))
        assert others.value.info.details["retry_after"] == pytest.approx(600, abs=0.1)
        held_clock.advance(550)
        began = clock.monotonic()
        assert await asked(host, by("a").child(timeout=20), "busy") == "limit_reached"
        assert await asked(host, model="busy") == "Hello."
        assert (clock.monotonic() - began, len(server.bodies)) == (pytest.approx(50, abs=0.1), 2)

        server.plans, began = [refuses(429, retry_after=30)], clock.monotonic()
        assert await asked(host, by("a").child(timeout=20), "late") == "plugin_error 429"
        assert clock.monotonic() - began < 0.1, "a deadline is not waited for in vain"

        server.default = breaks_off("half an")
        chunks, error = await streamed(host, "always")
        assert error is not None and error.info.retryable
        assert error.info.details["partial_text"] == "half an "
        assert [bool(chunk.restarted) for chunk in chunks].count(True) == 2
        assert all(chunk.response is None for chunk in chunks)


# --- channels -------------------------------------------------------------------------------------

FALL_OVER: list[tuple[str, dict[str, Any], Plan | None, str]] = [
    ("unreachable", {"base_url": "http://127.0.0.1:1/v1"}, None, "Hello from the second."),
    ("wrong key", {}, refuses(401), "Hello from the second."),
    ("no credit", {}, refuses(402), "Hello from the second."),
    ("no quota", {}, refuses(429, message="insufficient_quota"), "Hello from the second."),
    ("no such model", {"model": "huge"}, None, "Hello from the second."),
    ("fails", {}, refuses(500), "Hello from the second."),
    ("no key here", {"api_key_env": "NO_SUCH_VARIABLE"}, None, "Hello from the second."),
    ("wrong request", {}, refuses(400), "plugin_error 400"),
]


async def test_a_failing_channel_gives_way_to_the_next(
    project: Path, held_clock: HeldClock, servers: list[ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THIRD_KEY", "third")
    first, second = servers
    second.default = says("Hello from the second.")
    to_second = {"base_url": second.base_url}
    models = {name: entry(first, channels=[options, to_second]) for name, options, _, _ in FALL_OVER}
    models |= {name: entry(first, channels=[{}, to_second]) for name in ("both", "stream")}
    models["keys"] = entry(first, api_key=["first", "second"], api_key_env="THIRD_KEY")
    async with Host(project=project, settings={MODELS: models}) as host:
        began = clock.monotonic()
        with Failures() as failures:
            for name, _, plan, expected in FALL_OVER:
                with failures.row(name):
                    first.plans = [plan] if plan else []
                    assert await asked(host, model=name) == expected
                    first.plans = []
                    again = "Hello from the second." if expected.startswith("Hello") else "Hello."
                    assert await asked(host, model=name) == again  # what failed is not asked first any more
        first.plans, second.plans = [refuses(401)], [refuses(403)]
        assert await asked(host, model="both") == "plugin_error 403"

        first.keys.clear()
        first.plans = [refuses(429, retry_after=30), refuses(429, retry_after=60)]
        assert [await asked(host, model="keys") for _ in range(2)] == ["Hello.", "Hello."]
        assert first.keys == ["first", "second", "third", "third"]
        assert clock.monotonic() - began < 0.1, "nothing is waited for where there is another channel"
        held_clock.advance(31)
        assert await asked(host, model="keys") == "Hello."
        assert first.keys[4:] == ["first"]

        second.default, first.plans = says("the second answer"), [refuses(503)]
        chunks, error = await streamed(host, "stream")
        assert (text_of(chunks), error) == ("the second answer ", None)
        assert [chunk.restarted for chunk in chunks if chunk.restarted] == [], "it had given nothing"
        held_clock.advance(HOUR)
        first.plans = [breaks_off("what the first")]
        chunks, error = await streamed(host, "stream")
        (mark,) = [index for index, chunk in enumerate(chunks) if chunk.restarted]
        assert (text_of(chunks[:mark]), text_of(chunks[mark:])) == ("what the first ", "the second answer ")
        assert str(chunks[mark].restarted).startswith("The answer broke off and restarts: the model 'tiny' at ")
        last = chunks[-1].response
        assert error is None and last is not None
        assert (last.text, last.model) == ("the second answer ", "stream")


# --- aliases and embeddings -----------------------------------------------------------------------


async def test_an_alias_asks_the_model_that_it_stands_for(project: Path, servers: list[ModelServer]) -> None:
    aliases = {"fast": "m", "faster": "fast", "snake": "tail", "tail": "snake", "lost": "mm"}
    setups = {"m": entry(servers[0], context_tokens=9), **{name: {"alias": of} for name, of in aliases.items()}}
    settings = {MODELS: setups, "extensions.tavern-llm.defaultModel": "faster"}
    async with Host(project=project, settings=settings) as host:
        llm = host.services.get(LLM)
        response = await llm.complete(ask(model=None))
        assert (response.text, response.model) == ("Hello.", "m")
        found = {model.name: (model.alias_of, model.context_tokens, model.is_default) for model in await llm.models()}
        assert found == {"m": (None, 9, False), "fast": ("m", 9, False), "faster": ("m", 9, True)}
        snake = "'snake' in extensions.tavern-llm.models stands for itself: snake → tail → snake"
        lost = "the alias 'lost' stands for 'mm', but there is no language model 'mm' (did you mean m?)"
        wrong: list[tuple[str, type[TavernError], str]] = [("snake", Misconfigured, snake), ("lost", NotFound, lost)]
        await refused([(llm.complete(ask(model=name)), kind, told) for name, kind, told in wrong])


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_texts_become_vectors(project: Path, servers: list[ModelServer], placement: Any) -> None:
    (project / "replies.yaml").write_text("- reply: x\n")
    setups = {"m": entry(servers[0]), "scripted": {"adapter": "scripted", "file": "replies.yaml"}}
    async with Host(project=project, settings={MODELS: setups}, placement=placement) as host:
        llm = host.services.get(LLM)
        found = await llm.embed(["a", "bcd"], model="m")
        assert (found.vectors, found.model, found.usage.prompt_tokens) == ([[1.0], [3.0]], "m", 7)
        with pytest.raises(PluginFailure, match="the adapter 'scripted' of tavern-llm cannot do embed"):
            await llm.embed(["a"], model="scripted")
        assert [chunk.text async for chunk in llm.stream(ask())] == ["Hello. ", ""]


# --- limits and budgets ---------------------------------------------------------------------------


async def test_a_full_queue_turns_requests_away(project: Path, servers: list[ModelServer]) -> None:
    server, go_on = servers[0], asyncio.Event()

    async def waits(request: Any, body: dict[str, Any]) -> Any:
        await go_on.wait()
        return await says("At last.", prompt=1, completion=1)(request, body)

    server.default = waits
    limited = entry(server, concurrency=2, queue=1)
    settings = {MODELS: {"m": limited, "alias": {"alias": "m"}, "free": entry(server)}, BUDGETS: {"agent:b": 100}}
    async with Host(project=project, settings=settings) as host:
        llm = host.services.get(LLM)
        tasks = [asyncio.create_task(asked(host)) for _ in range(3)]
        await until(lambda: len(server.bodies) == 2, "two requests are with the model")
        with pytest.raises(LimitReached) as caught:
            await llm.complete(ask(model="alias"))
        assert caught.value.message.startswith("2 requests are with the model 'm' and 1 wait, which is as many as may")
        assert caught.value.info.details == {"retry_after": 5}
        assert await asked(host, by("a").child(timeout=0.1)) == "limit_reached"
        assert len(server.bodies) == 2
        tasks.pop().cancel()  # the one that waits, and one that is with the model
        tasks.pop().cancel()
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(asked(host)) for _ in range(2)]
        long, calling = ask("long" * 60, "free"), by("b")
        under_way = asyncio.create_task(llm.complete(long, call=calling))  # its prompt counts at once
        await until(lambda: any(len(str(body["messages"])) > 200 for body in server.bodies), "it is asked")
        with pytest.raises(LimitReached, match="has used 60 of the 100 tokens"):
            await llm.complete(long, call=calling)
        go_on.set()
        assert await asyncio.gather(*tasks) == ["At last."] * 3
        assert await asked(host) == "At last."
        await under_way
        assert (await llm.complete(long, call=calling)).text == "At last."


async def test_a_budget_holds_over_a_restart(project: Path, held_clock: HeldClock, servers: list[ModelServer]) -> None:
    server = servers[0]
    server.default = says("Hello.", prompt=70, completion=30)
    settings = {
        MODELS: {"m": entry(server)},
        BUDGETS: {"agent:*": 250, "agent:exact": 102, "agent:small": 50, "user:*": 0},
    }
    async with Host(project=project, settings=settings) as host:
        assert await asked(host, by("large")) == "Hello."
        chunks = [chunk async for chunk in host.services.get(LLM).stream(ask(), call=by("large"))]
        assert chunks[-1].response is not None
        assert await asked(host, by("small")) == "Hello."
        assert await asked(host, by("small")) == "limit_reached"
        assert [await asked(host, by("exact")) for _ in range(3)] == ["Hello.", "Hello.", "limit_reached"]
        assert [await asked(host, system_call()) for _ in range(3)] == ["Hello."] * 3  # without a budget
    async with Host(project=project, settings=settings) as host:
        assert await asked(host, by("large")) == "Hello."
        before = len(server.bodies)
        with pytest.raises(LimitReached) as caught:
            await host.services.get(LLM).complete(ask(), call=by("large"))
        assert caught.value.message == (
            f"agent:large has used 300 of the 250 tokens that it may use on {clock.now():%Y-%m-%d} (UTC), and this "
            "request needs about 2; the operator sets budgets in extensions.tavern-llm.budgets"
        )
        details = caught.value.info.details
        left = pytest.approx(86_400 - clock.seconds() % 86_400, abs=1)
        assert (details["used"], details["budget"], details["retry_after"]) == (300, 250, left)
        user = CallContext(principal=Principal(kind="user", id="ada"))
        with pytest.raises(LimitReached):
            await host.services.get(LLM).embed(["x"], model="m", call=user)
        assert len(server.bodies) == before
        held_clock.advance(86_400)
        assert await asked(host, by("large")) == "Hello."
    assert [thread.name for thread in threading.enumerate() if thread.name == "token budgets"] == []


async def test_broken_answers_and_long_prompts_count_as_well(project: Path, servers: list[ModelServer]) -> None:
    server = servers[0]
    server.default = breaks_off("x" * 400)
    settings: dict[str, Any] = {MODELS: {"m": entry(server, retry_seconds=0)}, BUDGETS: {"agent:*": 100}}
    (project / "replies.yaml").write_text(f"- tool_calls: [{{name: x, arguments: {'y' * 400}}}]\n")
    (project / "half.yaml").write_text("- reply: x\n  usage: {completion_tokens: 1}\n")
    settings[MODELS]["uncounted"] = {"adapter": "scripted", "file": "replies.yaml"}
    settings[MODELS]["half"] = {"adapter": "scripted", "file": "half.yaml"}
    async with Host(project=project, settings=settings) as host:
        llm = host.services.get(LLM)
        assert [await asked(host, by("c"), "uncounted") for _ in range(2)] == ["", "limit_reached"]
        assert (await llm.complete(ask("long" * 99, "half"), call=by("d"))).text == "x"
        assert await asked(host, by("d"), "half") == "limit_reached"
        stream = llm.stream(ask("long" * 98, "uncounted"), call=by("e"))
        await anext(aiter(stream))
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await llm.complete(ask("x", "half"), call=by("e"))).text == "x"
        assert await asked(host, by("e"), "half") == "limit_reached"
        with pytest.raises(TavernError, match="broke"):
            async for _ in llm.stream(ask(), call=by("a")):
                pass
        assert await asked(host, by("a")) == "limit_reached"
        server.default = says("never")
        with pytest.raises(LimitReached, match="this request needs about 101"):
            await llm.complete(ask("long" * 101), call=by("b"))
    assert len(server.bodies) == 1


async def test_changed_settings_count_from_the_next_request(project: Path, servers: list[ModelServer]) -> None:
    servers[1].default = says("Hello from the second.")
    async with Host(project=project) as host:

        async def save(**values: Any) -> None:
            change = SettingsChange(plugin="tavern-llm", values=values)
            await host.services.get(SETTINGS).save(change, call=host.call())

        await save(models={"m": entry(servers[0])})
        assert await asked(host) == "Hello."
        await save(models={"m": entry(servers[0], channels=[{"base_url": servers[1].base_url}, {}])})
        assert await asked(host) == "Hello from the second."
        await save(budgets={"*": 0})
        assert await asked(host) == "limit_reached"
        with pytest.raises(TavernError, match="expected tokens per day by pattern"):
            await save(budgets={"*": -1})


async def test_damaged_settings_lift_no_budget(
    project: Path, operator_folders: Path, servers: list[ModelServer]
) -> None:
    settings: dict[str, Any] = {MODELS: {"m": entry(servers[0])}}
    async with Host(project=project, settings={**settings, BUDGETS: {"agent:*": "many"}}) as host:
        assert await asked(host, by("a")) == "misconfigured"
        change = SettingsChange(plugin="tavern-llm", values={"budgets": {"*": 0}})
        await host.services.get(SETTINGS).save(change, call=host.call())
    (saved,) = operator_folders.rglob("settings.json")
    saved.write_text("{")
    async with Host(project=project, settings=settings) as host:
        assert await asked(host) == "misconfigured"
    assert servers[0].bodies == []
