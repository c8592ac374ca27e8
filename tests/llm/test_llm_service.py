"""The `llm` service in a running host: models, layers, hooks, deadlines, other plugins' adapters."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import refused
from helpers.tavern_project import Tavern
from helpers.waiting import following, until
from helpers.wire_server import WireServer

from tavern_host import LLM, Host
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured, NotFound, PluginFailure, TavernError, Vetoed
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_llm.api.llm import ChatMessage, LlmModelInfo, LlmRequest, LlmResponse

MODELS = "extensions.tavern-llm.models"

SCRIPT = """\
- when: {last_contains: once}
  reply: The first time.
  times: 1
- when: {contains: ale}
  reply: One ale, coming up. That makes two coppers.
- when: {last_contains: once}
  reply: Every other time.
"""
ALE = "One ale, coming up. That makes two coppers."


def ask(text: str, model: str | None = None) -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)], model=model)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def scripted(file: str = "files/replies.yaml") -> dict[str, Any]:
    return {"adapter": "scripted", "file": file}


async def save(host: Host, **values: Any) -> None:
    await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-llm", values=values), call=host.call())


@pytest.fixture
def project(project: Path) -> Path:
    """Return a project with a script."""
    write(project / "files" / "replies.yaml", SCRIPT)
    return project


async def test_scripted_replies_are_played(project: Path) -> None:
    write(project / "tavern.yaml", f"settings:\n  {MODELS}: {{bar: {{adapter: scripted, file: files/replies.yaml}}}}\n")
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert await llm.models() == [LlmModelInfo(name="bar", adapter="scripted", is_default=True, is_scripted=True)]
        chunks = [chunk async for chunk in llm.stream(ask("an ale"))]
        assert [chunk.text for chunk in chunks[:2]] == ["One ale, com", "ing up. That"]
        assert "".join(chunk.text for chunk in chunks) == ALE
        response = await llm.complete(ask("an ale"))
        assert response == chunks[-1].response == LlmResponse(text=ALE, model="bar", finish_reason="stop")
        once = [(await llm.complete(ask("once"))).text for _ in range(3)]
        assert once == ["The first time.", "Every other time.", "Every other time."]
        none = "files/replies.yaml: no reply fits; the last message was user: 'a cup of tea'; add one to the file"
        await refused([(llm.complete(ask("a\ncup of tea")), PluginFailure, none)])
        write(project / "files" / "replies.yaml", "- reply: 'Changed, entirely.'\n")
        assert (await llm.complete(ask("once"))).text == "Changed, entirely."
        write(project / "files" / "replies.yaml", "- rply: x\n")
        wrong = "files/replies.yaml:1: rply: unknown option (did you mean reply?)"
        await refused([(llm.complete(ask("once")), Misconfigured, wrong)])


async def test_a_model_is_chosen_by_name_or_default(project: Path) -> None:
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert await llm.models() == []
        nothing = "no language model is set up; `tavern models add NAME --url "
        await refused([(llm.complete(ask("hello")), Misconfigured, nothing)])
        await save(host, models={"bar": scripted(), "kitchen": scripted()})
        no_default = "there is no default; `tavern models default NAME` chooses one of: bar, kitchen"
        unknown = "there is no language model 'baar' (did you mean bar?)"
        await refused([(llm.complete(ask("ale")), Misconfigured, no_default)])
        await refused([(llm.complete(ask("ale", "baar")), NotFound, unknown)])
        await save(host, defaultModel="kitchen")
        assert [model.name for model in await llm.models() if model.is_default] == ["kitchen"]
        assert (await llm.complete(ask("ale"))).model == "kitchen"


async def test_a_project_that_somebody_sent_reaches_nobody(
    project: Path, tmp_path: Path, operator_folders: Path, wire_server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REAL_KEY", "sk-very-secret")
    write(tmp_path / "outside.yaml", "- reply: leaked\n")
    (project / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    write(project / "mine.yaml", "- reply: the project's\n")
    files = {
        **dict.fromkeys(
            ("../outside.yaml", "/etc/passwd", "link.yaml", "folder/../../outside.yaml"), "leads out of the project"
        ),
        **{"none.yaml": "does not exist in the project", "files": "is not a file of at most 1024 KiB"},
    }
    entries = [f"    m{number}: {{adapter: scripted, file: {file}}}\n" for number, file in enumerate(files)]
    evil = f"    evil: {{adapter: openai, base_url: '{wire_server.base_url}', model: m, api_key_env: REAL_KEY}}\n"
    mine = "    bar: {adapter: scripted, file: mine.yaml}\n"
    write(project / "tavern.yaml", "".join([f"settings:\n  {MODELS}:\n", evil, mine, *entries]))
    operators = f"settings:\n  {MODELS}: {{bar: {{adapter: scripted, file: files/replies.yaml}}}}\n"
    write(operator_folders / "config" / "host.yaml", operators)
    async with Host(project=project) as host:
        llm = host.services.get(LLM)
        assert "evil" not in {model.name for model in await llm.models()}
        keys = "API keys belong in the operator's settings"
        await refused([(llm.complete(ask("my diary", "evil")), Misconfigured, keys)])
        told = enumerate(files.values())
        await refused([(llm.complete(ask("hello", f"m{number}")), Misconfigured, part) for number, part in told])
        assert (await llm.complete(ask("ale", "bar"))).text == ALE, "the operator's of the same name"
    assert wire_server.requests == []


async def test_wrong_options_and_silence_are_told(project: Path, wire_server: WireServer) -> None:
    wire_server.pieces = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", None]
    wrong = {"adapter": "openai", "base_url": "hush", "model": 3, "api_key": "sk-very-secret"}
    slow = {"adapter": "openai", "base_url": wire_server.base_url, "model": "tiny"}
    async with Host(project=project, settings={MODELS: {"m": wrong, "slow": slow}}) as host:
        llm = host.services.get(LLM)
        with pytest.raises(Misconfigured) as caught:
            await llm.complete(ask("hello", "m"))
        assert caught.value.message == (
            "the model 'm' in the environment's setting extensions.tavern-llm.models: the options of the adapter "
            "'openai': base_url: must be an address such as https://api.example.com/v1; "
            "model: input should be a valid string"
        )
        with pytest.raises(DeadlineExceeded, match="the model 'slow' did not answer before the deadline"):
            await llm.complete(ask("hello", "slow"), call=host.call().child(timeout=0.1))
        with pytest.raises(DeadlineExceeded):
            async for _ in llm.stream(ask("hello", "slow"), call=host.call().child(timeout=0.1)):
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
ADAPTER = """
from tavern_host import hookimpl
from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import LlmAdapterInfo, LlmChunk, LlmResponse

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
        for _ in range(4 if "talk on" in request.messages[-1].content else 0):
            yield LlmChunk(text=response.text, reasoning="hm" * (1 << 19))
        yield LlmChunk(text=response.text)
        if "stop short" not in response.text.lower():
            yield LlmChunk(response=response)

    async def close(self):
        if "log" in self.options:
            open(self.options["log"], "a").write("closed ")

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name=name, handler=f"{__name__}:Parrot") for name in ("parrot", "scripted")]
"""


async def answers(host: Host, text: str, model: str = "m") -> list[str]:
    """Return the texts of `complete` and `stream`, or the message of their refusal."""
    llm = host.services.get(LLM)
    found = []
    try:
        found.append((await llm.complete(ask(text, model))).text)
    except TavernError as error:
        found.append(error.message)
    streamed = ""
    try:
        async for chunk in llm.stream(ask(text, model)):
            streamed += chunk.text
    except Vetoed as error:
        streamed += error.message
    return [*found, streamed]


async def test_plugins_change_and_refuse_requests_and_answers(project: Path, tmp_path: Path) -> None:
    permissions = {"hooks": ["hook:server:llm:before-request", "hook:server:llm:after-response"]}
    plugin = write_plugin(tmp_path / "reviewer", {"__init__.py": REVIEWER}, permissions=permissions)
    settings = {MODELS: {"m": scripted()}}
    async with Host(project=project, settings=settings, plugins=[plugin], trust=["reviewer"]) as host:
        assert await answers(host, "a tea") == [f"[m] {ALE}"] * 2
        assert await answers(host, "the password") == ["reviewer refused: no passwords, please"] * 2
        assert await answers(host, "once") == ["reviewer refused: not this answer"] * 2


async def test_another_plugins_adapter_can_be_used(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tavern"), "propagate", True)
    permissions, log = {"hooks": ["hook:server:llm:register-adapters"]}, tmp_path / "log"
    plugin = write_plugin(tmp_path / "acme", {"__init__.py": ADAPTER}, permissions=permissions)
    small = {"adapter": "parrot", "channels": [{"small": True}, {}]}
    keyed = {"adapter": "parrot", "api_key": "sk-very-secret"}
    settings = {MODELS: {"small": small, "keyed": keyed, "twice": scripted()}}
    with caplog.at_level(logging.DEBUG, logger="tavern"):
        async with Host(project=project, settings=settings, plugins=[plugin]) as host:
            llm = host.services.get(LLM)
            await host.grant("acme")
            await save(host, models={"m": {"adapter": "parrot", "log": str(log)}})
            stream = llm.stream(ask("polly", "m"))
            assert (await anext(aiter(stream))).text == "POLLY"
            await save(host, models={"m": {"adapter": "parrot"}})
            assert await answers(host, "other") == ["OTHER", "OTHER"]
            assert not log.exists()
            assert [chunk.response is not None async for chunk in stream] == [True]
            assert log.read_text() == "closed ", "a replaced adapter, after its last request"

            for text, told in (
                ("stop short", "adapter 'parrot' of acme ended a stream without the whole answer"),
                ("talk on", "the model 'm' gave more than 4,194,304 characters; the answer was cut off"),
            ):
                with pytest.raises(PluginFailure, match=told):
                    _ = [chunk async for chunk in llm.stream(ask(text, "m"))]
            rows = [
                ("small", "too long", "the prompt is too long", {"overflow": True}),  # and the next is not asked
                ("keyed", "break", "adapter 'parrot' of acme failed: RuntimeError: cannot reach it with ********", {}),
                ("keyed", "fail politely", "the key ******** is wrong", {"status": 401}),
            ]
            for model, text, told, details in rows:
                with pytest.raises(PluginFailure) as caught:
                    await llm.complete(ask(text, model))
                assert caught.value.message.removeprefix("the ") == told.removeprefix("the ")
                assert caught.value.info.details.items() >= details.items()
            taken = "the LLM adapter 'scripted' is not used: it is tavern-llm's already, and tavern-llm keeps it"
            assert f"{taken} (choose another name)" in map(str, host.plugin("acme").problems)

            await host.revoke("acme")
            assert [model.name for model in await llm.models()] == ["twice"]
            gone = "there is no adapter 'parrot'; there is anthropic, gemini, openai, openai-responses, scripted"
            await refused([(llm.complete(ask("polly", "m")), Misconfigured, gone)])
    assert "cannot reach it with ********" in caplog.text
    assert "sk-very-secret" not in caplog.text


async def test_a_model_that_is_written_into_a_file_of_a_running_host_is_there(
    tmp_path: Path, operator_folders: Path
) -> None:
    project, operator = Tavern(tmp_path / "inn"), operator_folders / "config" / "host.yaml"
    operator.parent.mkdir(parents=True, exist_ok=True)
    project.write("tavern.yaml", "name: inn\n")
    project.replies(({}, "Hello."))
    models = {MODELS: {"late": {"adapter": "scripted", "file": "replies.json"}}}
    async with following(Host(project.root)) as host:
        request = LlmRequest(model="late", messages=[ChatMessage(role="user", content="Hi")])
        with pytest.raises(TavernError, match="no language model is set up"):
            await host.services.get(LLM).complete(request)
        project.write("tavern.yaml", {"settings": models})
        await until(lambda: has_models(host, ["late"]))
        assert (await host.services.get(LLM).complete(request)).text == "Hello."
        theirs = {"adapter": "openai", "base_url": "http://inn.example/v1", "model": "m"}
        operator.write_text(json.dumps({"settings": {MODELS: {"theirs": theirs}}}))
        await until(lambda: has_models(host, ["late", "theirs"]))


async def has_models(host: Host, names: list[str]) -> bool:
    return sorted(model.name for model in await host.services.get(LLM).models()) == names
