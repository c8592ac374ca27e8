"""`tavern models list|add|test|remove|default`: from an address and a key to a model that answers."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from tavern_host import CommandInfo, CommandOutput, CommandParameter, PluginContext
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, PluginFailure, one_line
from tavern_host.contracts.llm import LLM, ChatMessage, LlmModelInfo, LlmRequest, LlmResponse
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_llm.adapters import Adapters
from tavern_llm.failures import UNKNOWN
from tavern_llm.models import HOW_TO_ADD, Channel, find_model, misconfigured, read_models
from tavern_llm.service import LlmService

QUESTION = "Say hello in one short sentence."

SECONDS = 120.0
"""How long a server may take to answer: a model on this machine may have to be loaded first."""

_NAME = re.compile(r"[\w.:/@+-]{1,100}")


def commands() -> list[CommandInfo]:
    """Return the commands."""

    def command(name: str, handler: str, help: str, *parameters: CommandParameter) -> CommandInfo:
        handler = f"tavern_llm.commands:{handler}"
        return CommandInfo(name=f"models {name}", help=help, handler=handler, parameters=[*parameters])

    name = CommandParameter(name="name", help="The model's name here.", required=True)
    return [
        command("list", "list_models", "List the language models."),
        command(
            "add",
            "add_model",
            "Set up a language model: ask its server what it has, try it, and save it for this project.",
            name,
            CommandParameter(name="--url", help="The server's address, such as https://api.example.com/v1."),
            CommandParameter(name="--key", help="The API key, as others here may see it; '-' reads standard input."),
            CommandParameter(name="--key-env", help="The environment variable that holds the API key."),
            CommandParameter(name="--model", help="The server's name for the model; asked for where it has several."),
            CommandParameter(name="--adapter", help="How the model is reached.", default="openai"),
            CommandParameter(name="--default", help="Make it the default model.", type="flag"),
            CommandParameter(name="--replace", help="Replace a model of this name.", type="flag"),
        ),
        command(
            "test",
            "test_model",
            "Send a short request to a model and show its answer.",
            CommandParameter(name="name", help="The model's name; the default model if left out."),
        ),
        command("remove", "remove_model", "Forget a language model, or an alias, that was set up here.", name),
        command("default", "set_default", "Choose the model that is asked where a request names none.", name),
    ]


async def list_models(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the models that can be used, and what is wrong with the others."""
    service = LlmService(context)
    models, problems = await service.survey()
    await service.close()
    rows = [[model.name, _note(model), str(model.context_tokens or ""), _prices(model)] for model in models]
    title = None if rows else f"no language model is set up; {HOW_TO_ADD}"
    yield CommandOutput(kind="table", title=title, columns=["name", "adapter", "context", "prices"], rows=rows)
    for problem in problems:
        yield CommandOutput(kind="progress", text=problem)
    data: dict[str, Any] = {"models": [model.to_json() for model in models], "problems": problems}
    yield CommandOutput(kind="result", data=data)


async def add_model(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Find the model at its server, try it, save it; nothing is saved where it does not answer."""
    name = str(arguments["name"])
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is no name for a model: letters, digits and ._-:/@+ without spaces")
    others = await context.services.get(LLM).models()
    present = context.settings.layers("models").get("operator", {})
    if name in present and not arguments["replace"]:
        raise Conflict(f"there is a model {name!r} already; --replace replaces it")
    prober = _Prober(context, name, str(arguments["adapter"]), await _options(arguments))
    try:
        if "base_url" in prober.options:
            yield CommandOutput(kind="progress", text="Asking the server what it has")
        listed = await prober.find(str(arguments["model"] or ""))
        if listed is not None:
            prober.options["model"] = await _choice(listed)
        yield CommandOutput(kind="progress", text=f"Trying {prober.what}")
        response = await prober.call("complete", _question(name))
    finally:
        await prober.adapters.close()
    is_default = bool(arguments["default"]) or all(model.is_scripted or model.name == name for model in others)
    values: dict[str, JsonValue] = {"models": {**present, name: {"adapter": prober.adapter, **prober.options}}}
    values |= {"defaultModel": name} if is_default else {}
    await context.services.get(SETTINGS).save(SettingsChange(plugin=context.plugin, values=values))
    default = ", as the default" if is_default else f"; `tavern models default {name}` makes it the default"
    yield CommandOutput(kind="text", text=f"{name} is set up: {prober.what}{default}.\nIt says: {_said(response)}")
    data: dict[str, Any] = {"name": name, "adapter": prober.adapter, "isDefault": is_default}
    shown = {"baseUrl": prober.options.get("base_url"), "model": prober.options.get("model")}
    yield CommandOutput(kind="result", data={**data, **shown, "response": response.to_json()})


async def test_model(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Ask a model through the service, as others do."""
    llm = context.services.get(LLM)
    name = str(arguments["name"]) if arguments.get("name") else None
    began = time.monotonic()
    response = await llm.complete(_question(name))
    seconds = time.monotonic() - began
    model = next((m for m in await llm.models() if (m.name == name if name else m.is_default)), None)
    used = response.usage
    tokens = f", {used.prompt_tokens or 0} + {used.completion_tokens or 0} tokens" if used.to_json() else ""
    shown = f"{model.name} ({_note(model)})" if model is not None else response.model
    yield CommandOutput(kind="text", text=f"{shown} answered in {seconds:.1f} s{tokens}: {_said(response)}")
    for notice in response.notices:
        yield CommandOutput(kind="progress", text=notice)
    data: dict[str, Any] = {"model": model.to_json() if model is not None else None, "seconds": round(seconds, 3)}
    yield CommandOutput(kind="result", data={**data, "response": response.to_json()})


async def set_default(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Save the default model."""
    find_model(name := str(arguments["name"]), read_models(context.settings.layers("models")))
    await context.services.get(SETTINGS).save(SettingsChange(plugin=context.plugin, values={"defaultModel": name}))
    chosen = context.settings.get("defaultModel")
    above = "" if chosen == name else f", but the environment (TAVERN_SETTINGS) sets {chosen!r}, which stays in force"
    yield CommandOutput(kind="text", text=f"{name} is the default model{above}.")
    yield CommandOutput(kind="result", data={"name": chosen})


async def remove_model(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Take a model out of the operator's settings; one that others stand for stays."""
    name, layers = str(arguments["name"]), context.settings.layers("models")
    present, setups = layers.get("operator", {}), read_models(layers)
    if name not in present:
        layer = (setups.get(name) or find_model(name, setups)).layer
        raise InvalidInput(f"{name!r} stands in the {layer}'s settings, not in yours: take it out there")
    values: dict[str, JsonValue] = {"models": {key: value for key, value in present.items() if key != name}}
    was_default = context.settings.layers("defaultModel").get("operator") == name
    values |= {"defaultModel": ""} if was_default else {}
    await context.services.get(SETTINGS).save(SettingsChange(plugin=context.plugin, values=values))
    default = "; it was the default, `tavern models default NAME` chooses another" if was_default else ""
    yield CommandOutput(kind="text", text=f"{name} is removed{default}.")
    yield CommandOutput(kind="result", data={"name": name, "wasDefault": was_default})


class _Prober:
    """Finds out how a model that is not set up yet is reached. `options` are those of its adapter."""

    def __init__(self, context: PluginContext, name: str, adapter: str, options: dict[str, JsonValue]) -> None:
        self.adapters = Adapters(context)
        self.adapter = adapter
        self.options = options
        self._name = name

    @property
    def what(self) -> str:
        """The model as messages name it."""
        model, url = self.options.get("model"), self.options.get("base_url")
        return " at ".join(str(part) for part in (model, url) if part) or f"the adapter {self.adapter}"

    async def find(self, model: str) -> list[str] | None:
        """Set the address, and the model that was asked for; return the server's models where none was.

        Raises `PluginFailure` where the server cannot be asked, `InvalidInput` where it has none.
        """
        if model:
            self.options["model"] = model
        try:
            listed = await self._listed()
        except PluginFailure as error:
            lists_none = error.info.details.get("status") in (404, 405, 501) or "cannot do" in error.message
            if not lists_none or not (model or self.adapter != "openai"):
                raise
            return None  # whether it has the model, it says when it is asked
        if model and listed and model not in listed:
            raise InvalidInput(
                f"the server has no model {model!r}{did_you_mean(model, listed)}; it has {one_line(', '.join(listed))}"
            )
        if not model and not listed:
            raise InvalidInput("the server lists no model; name one with --model")
        return None if model else listed

    async def _listed(self) -> list[str]:
        """Return the server's models, asking under `/v1` as well where the address has no such part."""
        try:
            return list(await self.call("list_models"))
        except PluginFailure as error:
            given = str(self.options.get("base_url") or "/v1")
            is_elsewhere = error.info.details.get("status") in (None, 404, 405) and not error.info.retryable
            if not is_elsewhere or re.search(r"/v\d", given):
                raise
            self.options["base_url"] = f"{given.rstrip('/')}/v1"
            with suppress(PluginFailure):
                return list(await self.call("list_models"))
            self.options["base_url"] = given
            raise

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the adapter. Raises `InvalidInput` for wrong options, `PluginFailure`."""
        options = {"model": UNKNOWN, **self.options} if self.adapter == "openai" else self.options
        channel = Channel(self._name, "operator", 0, self.adapter, options)
        try:
            async with self.adapters.use(channel) as adapter, asyncio.timeout(SECONDS):
                return await adapter.method(method)(*arguments, system_call())
        except Misconfigured as error:
            text = error.message.removeprefix(misconfigured(channel, "").message)
            text = text.replace("base_url", "--url").replace("api_key_env", "--key-env").replace("api_key", "--key")
            raise InvalidInput(text) from None
        except TimeoutError:
            raise PluginFailure(f"{self.what} did not answer within {SECONDS:.0f} s") from None


async def _options(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the adapter's options that the command line gives."""
    url, key, variable = (arguments.get(name) for name in ("url", "key", "key_env"))
    if key and variable:
        raise InvalidInput("give --key or --key-env, not both")
    if not url and arguments["adapter"] == "openai":
        raise InvalidInput("--url is missing: the server's address, such as https://api.example.com/v1")
    if key == "-":
        key = (await asyncio.to_thread(sys.stdin.readline)).strip()
    given = {"base_url": url, "api_key": key, "api_key_env": variable}
    return {name: value for name, value in given.items() if value}


async def _choice(models: list[str]) -> str:
    """Return the only model, or the one that the person at the terminal chooses."""
    if len(models) == 1:
        return models[0]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInput(f"the server has {len(models)} models; name one with --model: {one_line(', '.join(models))}")
    for number, model in enumerate(models, 1):
        print(f"{number:4}  {model}", file=sys.stderr)
    print("Which one? Number or name: ", end="", file=sys.stderr, flush=True)
    answer: str = (await asyncio.to_thread(sys.stdin.readline)).strip()
    if answer.isdecimal() and 1 <= int(answer[:6]) <= len(models):
        return models[int(answer[:6]) - 1]
    if answer in models:
        return answer
    raise InvalidInput(f"the server has no model {answer!r}{did_you_mean(answer, models)}")


def _question(model: str | None) -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=QUESTION)], model=model)


def _said(response: LlmResponse) -> str:
    return one_line(response.text) or "(an answer without text)"


def _note(model: LlmModelInfo) -> str:
    """Return how a model is reached, as a table shows it."""
    note = f"{model.adapter}: plays replies from a file" if model.is_scripted else model.adapter
    alias = f", alias of {model.alias_of}" if model.alias_of else ""
    return note + alias + (", default" if model.is_default else "")


def _prices(model: LlmModelInfo) -> str:
    prices = model.price_input, model.price_output
    return " / ".join("?" if price is None else f"{price:g}" for price in prices) if any(prices) else ""
