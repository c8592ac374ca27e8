"""The `llm` service in a running host: models, layers, hooks, deadlines, other plugins' adapters."""

from __future__ import annotations

import logging
import textwrap
from pathlib import Path
from typing import Any

import pytest
from helpers.wire_server import WireServer

from tavern_host import LLM, Host
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured, NotFound, PluginFailure, TavernError, Vetoed
from tavern_host.contracts.llm import ChatMessage, LlmModelInfo, LlmRequest, LlmResponse
from tavern_host.contracts.settings import SETTINGS, SettingsChange

MODELS = "extensions.tavern-llm.models"
DEFAULT = "extensions.tavern-llm.defaultModel"

SCRIPT = """\
- when: {last_contains: once}
  reply: The first time.
  times: 1
- when: {contains: ale}
  reply: One ale, coming up. That makes two coppers.
- when: {last_contains: once}
  reply: Every other time.
"""


def ask(text: str, model: str | None = None) -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)], model=model)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


@pytest.fixture
def scripted(project: Path) -> dict[str, Any]:
    """Put a script into the project and return the settings that use it."""
    write(project / "files" / "replies.yaml", SCRIPT)
    return {MODELS: {"bar": {"adapter": "scripted", "file": "files/replies.yaml"}}}


def plugin(folder: Path, name: str, code: str, **permissions: Any) -> Path:
    """Write a folder plugin and return its folder."""
    hooks = "\n".join(f"    - {hook}" for hook in permissions["hooks"])
    manifest = f"name: {name}\ndisplayName: {name}\nversion: 1.0.0\npermissions:\n  hooks:\n{hooks}\n"
    write(folder / name / "plugin.yaml", manifest)
    write(folder / name / "__init__.py", code)
    return folder / name


ADAPTER = """
    from tavern_host import hookimpl
    from tavern_host.contracts.errors import PluginFailure
    from tavern_host.contracts.llm import LlmAdapterInfo, LlmChunk, LlmResponse

    class Parrot:
        def __init__(self, options):
            self.options = options

        async def complete(self, request, call):
            if "break" in request.messages[-1].content:
                raise RuntimeError(f"cannot reach it with {self.options['api_key']}")
            if "politely" in request.messages[-1].content:
                raise PluginFailure(f"the key {self.options['api_key']} is wrong", status=401)
            if "too long" in request.messages[-1].content and self.options.get("small"):
                raise PluginFailure("the prompt is too long", overflow=True)
            return LlmResponse(text=request.messages[-1].content.upper(), model="parrot")

        async def stream(self, request, call):
            response = await self.complete(request, call)
            yield LlmChunk(text=response.text)
            if "stop short" not in response.text.lower():
                yield LlmChunk(response=response)

        async def close(self):
            if "log" in self.options:
                open(self.options["log"], "a").write("closed ")

    @hookimpl
    def tavern_register_llm_adapters():
        return [LlmAdapterInfo(name="parrot", handler=f"{__name__}:Parrot")]
"""


# --- the scripted adapter -------------------------------------------------------------------------


async def test_a_project_can_set_up_scripted_replies(project: Path, scripted: dict[str, Any]) -> None:
    write(
        project / "tavern.yaml",
        f"settings:\n  {MODELS}: {{bar: {{adapter: scripted, file: files/replies.yaml}}}}\n",
    )
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert await llm.models() == [LlmModelInfo(name="bar", adapter="scripted", is_default=True, is_scripted=True)]
        response = await llm.complete(ask("an ale"))
    assert response.text == "One ale, coming up. That makes two coppers."
    assert (response.model, response.finish_reason) == ("bar", "stop")


async def test_a_scripted_reply_is_streamed_in_pieces(project: Path, scripted: dict[str, Any]) -> None:
    async with Host(project=project, settings=scripted) as host:
        chunks = [chunk async for chunk in host.services.get(LLM).stream(ask("an ale"))]
    assert [chunk.text for chunk in chunks[:2]] == ["One ale, com", "ing up. That"]
    assert "".join(chunk.text for chunk in chunks) == "One ale, coming up. That makes two coppers."
    assert chunks[-1].response == LlmResponse(
        text="One ale, coming up. That makes two coppers.", model="bar", finish_reason="stop"
    )


async def test_a_reply_is_given_as_often_as_it_says(project: Path, scripted: dict[str, Any]) -> None:
    async with Host(project=project, settings=scripted) as host:
        llm = host.services.get(LLM)
        assert [(await llm.complete(ask("once"))).text for _ in range(3)] == [
            "The first time.",
            "Every other time.",
            "Every other time.",
        ]


async def test_a_script_is_read_again_when_it_changes(project: Path, scripted: dict[str, Any]) -> None:
    async with Host(project=project, settings=scripted) as host:
        llm = host.services.get(LLM)
        await llm.complete(ask("once"))
        write(project / "files" / "replies.yaml", "- reply: 'Changed, entirely.'\n")
        assert (await llm.complete(ask("once"))).text == "Changed, entirely."
        write(project / "files" / "replies.yaml", "- rply: x\n")
        with pytest.raises(
            Misconfigured, match=r"^files/replies.yaml:1: rply: unknown option \(did you mean reply\?\)$"
        ):
            await llm.complete(ask("once"))


async def test_without_a_fitting_reply_file_and_message_are_named(project: Path, scripted: dict[str, Any]) -> None:
    async with Host(project=project, settings=scripted) as host:
        with pytest.raises(PluginFailure) as caught:
            await host.services.get(LLM).complete(ask("a\ncup of tea"))
    assert caught.value.message == (
        "files/replies.yaml: no reply fits; the last message was user: 'a cup of tea'; add one to the file"
    )


@pytest.mark.parametrize("file", ["../outside.yaml", "/etc/passwd", "link.yaml", "folder/../../outside.yaml"])
async def test_a_script_outside_of_the_project_is_not_read(project: Path, tmp_path: Path, file: str) -> None:
    write(tmp_path / "outside.yaml", "- reply: leaked\n")
    (project / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    async with Host(project=project, settings={MODELS: {"m": {"adapter": "scripted", "file": file}}}) as host:
        with pytest.raises(Misconfigured, match="leads out of the project"):
            await host.services.get(LLM).complete(ask("hello"))


@pytest.mark.parametrize(
    ("file", "part"), [("none.yaml", "does not exist in the project"), ("files", "is not a file of at most 1024 KiB")]
)
async def test_a_script_that_is_no_file(project: Path, file: str, part: str) -> None:
    (project / "files").mkdir()
    async with Host(project=project, settings={MODELS: {"m": {"adapter": "scripted", "file": file}}}) as host:
        with pytest.raises(Misconfigured, match=part):
            await host.services.get(LLM).complete(ask("hello"))


# --- which model ----------------------------------------------------------------------------------


async def test_with_nothing_set_up_the_error_says_what_to_do(project: Path) -> None:
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert await llm.models() == []
        with pytest.raises(
            Misconfigured, match=r"no language model is set up; `tavern models add NAME --url .*` sets one up"
        ):
            await llm.complete(ask("hello"))


async def test_an_unknown_model_is_told_with_near_names(project: Path, scripted: dict[str, Any]) -> None:
    scripted[MODELS]["kitchen"] = scripted[MODELS]["bar"]
    async with Host(project=project, settings=scripted) as host:
        llm = host.services.get(LLM)
        with pytest.raises(NotFound, match=r"there is no language model 'baar' \(did you mean bar\?\)"):
            await llm.complete(ask("ale", model="baar"))
        with pytest.raises(
            Misconfigured, match=r"there is no default; `tavern models default NAME` chooses one of: bar, kitchen"
        ):
            await llm.complete(ask("ale"))


async def test_the_default_model_is_a_setting(project: Path, scripted: dict[str, Any]) -> None:
    scripted[MODELS]["kitchen"] = scripted[MODELS]["bar"]
    async with Host(project=project, settings={**scripted, DEFAULT: "kitchen"}) as host:
        llm = host.services.get(LLM)
        assert [model.name for model in await llm.models() if model.is_default] == ["kitchen"]
        assert (await llm.complete(ask("ale"))).model == "kitchen"


async def test_a_project_that_somebody_sent_reaches_nobody(
    project: Path, wire_server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REAL_KEY", "sk-very-secret")
    entry = f"adapter: openai, base_url: '{wire_server.base_url}', model: m, api_key_env: REAL_KEY"
    write(project / "tavern.yaml", f"settings:\n  {MODELS}:\n    evil: {{{entry}}}\n")
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert await llm.models() == []
        with pytest.raises(Misconfigured, match="API keys belong in the operator's settings"):
            await llm.complete(ask("my diary", model="evil"))
    assert wire_server.requests == []


async def test_the_operators_model_wins_over_a_projects_of_the_same_name(
    project: Path, operator_folders: Path, scripted: dict[str, Any]
) -> None:
    write(project / "mine.yaml", "- reply: the project's\n")
    write(project / "tavern.yaml", f"settings:\n  {MODELS}: {{bar: {{adapter: scripted, file: mine.yaml}}}}\n")
    entry = "{bar: {adapter: scripted, file: files/replies.yaml}}"
    write(operator_folders / "config" / "host.yaml", f"settings:\n  {MODELS}: {entry}\n")
    async with Host(project=project) as host:
        assert (await host.services.get(LLM).complete(ask("ale"))).text.startswith("One ale")


async def test_wrong_options_are_told_without_their_values(project: Path) -> None:
    settings = {MODELS: {"m": {"adapter": "openai", "base_url": "hush", "model": 3, "api_key": "sk-very-secret"}}}
    async with Host(project=project, settings=settings) as host:
        with pytest.raises(Misconfigured) as caught:
            await host.services.get(LLM).complete(ask("hello"))
    assert caught.value.message == (
        "the model 'm' in the environment's setting extensions.tavern-llm.models: the options of the adapter 'openai': "
        "base_url: must be an address such as https://api.example.com/v1; model: input should be a valid string"
    )


async def test_a_models_silence_ends_at_the_deadline_of_the_call(project: Path, wire_server: WireServer) -> None:
    wire_server.pieces = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", None]
    settings = {MODELS: {"m": {"adapter": "openai", "base_url": wire_server.base_url, "model": "tiny"}}}
    async with Host(project=project, settings=settings) as host:
        llm = host.services.get(LLM)
        with pytest.raises(DeadlineExceeded, match="the model 'm' did not answer before the deadline"):
            await llm.complete(ask("hello"), call=host.call().child(timeout=0.1))
        with pytest.raises(DeadlineExceeded):
            async for _ in llm.stream(ask("hello"), call=host.call().child(timeout=0.1)):
                pass


# --- other plugins --------------------------------------------------------------------------------

REVIEWER = """
    from tavern_host import Veto, hookimpl

    @hookimpl
    def tavern_before_llm_request(request):
        if "password" in request.messages[-1].content:
            return Veto(reason="no passwords, please")
        if "tea" in request.messages[-1].content:
            message = request.messages[-1].model_copy(update={"content": "an ale"})
            return request.model_copy(update={"messages": [message]})

    @hookimpl
    def tavern_after_llm_response(response, request):
        if "once" in request.messages[-1].content:
            return Veto(reason="not this answer")
        return response.model_copy(update={"text": f"[{request.model}] {response.text}"})
"""
REVIEWING = ["hook:server:llm:before-request", "hook:server:llm:after-response"]


async def answers(host: Host, text: str) -> list[str]:
    """Return what `complete` and `stream` give, or the message of their refusal."""
    llm = host.services.get(LLM)
    found = []
    try:
        found.append((await llm.complete(ask(text))).text)
    except TavernError as error:
        found.append(error.message)
    streamed = ""
    try:
        async for chunk in llm.stream(ask(text)):
            streamed += chunk.text
    except Vetoed as error:
        streamed += error.message
    return [*found, streamed]


async def test_plugins_see_change_and_refuse_requests_and_answers(
    project: Path, tmp_path: Path, scripted: dict[str, Any]
) -> None:
    folder = plugin(tmp_path, "reviewer", REVIEWER, hooks=REVIEWING)
    async with Host(project=project, settings=scripted, plugins=[folder], trust=["reviewer"]) as host:
        changed = "[bar] One ale, coming up. That makes two coppers."
        assert await answers(host, "a tea") == [changed, changed]
        assert await answers(host, "the password") == ["reviewer refused: no passwords, please"] * 2
        assert await answers(host, "once") == ["reviewer refused: not this answer"] * 2


async def test_another_plugins_adapter_can_be_used_and_is_gone_with_it(project: Path, tmp_path: Path) -> None:
    folder = plugin(tmp_path, "acme", ADAPTER, hooks=["hook:server:llm:register-adapters"])
    settings = {MODELS: {"m": {"adapter": "parrot"}}}
    async with Host(project=project, settings=settings, plugins=[folder]) as host:
        llm = host.services.get(LLM)
        await host.grant("acme")
        assert await answers(host, "polly") == ["POLLY", "POLLY"]
        with pytest.raises(PluginFailure, match="the adapter 'parrot' of acme ended a stream without the whole answer"):
            _ = [chunk async for chunk in llm.stream(ask("stop short"))]
        await host.revoke("acme")
        assert await llm.models() == []
        with pytest.raises(Misconfigured, match="there is no adapter 'parrot'; there is openai, scripted"):
            await llm.complete(ask("polly"))


async def test_a_replaced_adapter_is_closed_after_its_last_request(project: Path, tmp_path: Path) -> None:
    folder, log = plugin(tmp_path, "acme", ADAPTER, hooks=["hook:server:llm:register-adapters"]), tmp_path / "log"

    async def set_up(host: Host, **options: Any) -> None:
        values: dict[str, Any] = {"models": {"m": {"adapter": "parrot", **options}}}
        await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-llm", values=values), call=host.call())

    async with Host(project=project, plugins=[folder], trust=["acme"]) as host:
        llm = host.services.get(LLM)
        await set_up(host, log=str(log))
        stream = llm.stream(ask("polly"))
        assert (await anext(aiter(stream))).text == "POLLY"
        await set_up(host)
        assert (await llm.complete(ask("other"))).text == "OTHER"
        assert not log.exists()
        assert [chunk.response is not None async for chunk in stream] == [True]
        assert log.read_text() == "closed "


async def test_an_overflow_is_told_and_not_tried_elsewhere(project: Path, tmp_path: Path) -> None:
    folder = plugin(tmp_path, "acme", ADAPTER, hooks=["hook:server:llm:register-adapters"])
    settings = {MODELS: {"m": {"adapter": "parrot", "channels": [{"small": True}, {}]}}}
    async with Host(project=project, settings=settings, plugins=[folder], trust=["acme"]) as host:
        with pytest.raises(PluginFailure) as caught:
            await host.services.get(LLM).complete(ask("too long"))
        assert caught.value.info.details == {"overflow": True}


async def test_an_adapters_own_error_names_it_and_holds_no_key(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tavern"), "propagate", True)
    folder = plugin(tmp_path, "acme", ADAPTER, hooks=["hook:server:llm:register-adapters"])
    settings = {MODELS: {"m": {"adapter": "parrot", "api_key": "sk-very-secret"}}}
    with caplog.at_level(logging.DEBUG, logger="tavern"):
        async with Host(project=project, settings=settings, plugins=[folder], trust=["acme"]) as host:
            with pytest.raises(PluginFailure) as caught:
                await host.services.get(LLM).complete(ask("break"))
            with pytest.raises(PluginFailure, match=r"^the key \*\*\* is wrong$") as told:
                await host.services.get(LLM).complete(ask("fail politely"))
            assert told.value.info.details == {"status": 401}
    expected = "the adapter 'parrot' of acme failed: RuntimeError: cannot reach it with ***"
    assert caught.value.message == expected
    assert expected in caplog.text
    assert "sk-very-secret" not in caplog.text


async def test_two_plugins_that_claim_one_adapter_are_a_conflict(project: Path, tmp_path: Path) -> None:
    code = ADAPTER.replace('"parrot", handler', '"scripted", handler')
    folder = plugin(tmp_path, "acme", code, hooks=["hook:server:llm:register-adapters"])
    settings = {MODELS: {"m": {"adapter": "scripted", "file": "x"}}}
    async with Host(project=project, settings=settings, plugins=[folder], trust=["acme"]) as host:
        with pytest.raises(Misconfigured, match="'scripted' is provided by acme and tavern-llm; disable all but one"):
            await host.services.get(LLM).complete(ask("hello"))
        (problem,) = host.plugin("acme").problems
        assert str(problem) == (
            "the adapter 'scripted' is provided by acme and tavern-llm; none of them is used "
            "(keep one alone, such as with `tavern plugins disable acme`)"
        )
