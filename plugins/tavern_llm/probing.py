"""Sets up language models for the command line and over HTTP: finds one at its server, and tries it before it is saved.

`words` say how whoever asks calls the options: `--url` at a terminal, the address in a form.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydantic import JsonValue

from tavern_host import PluginContext
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, PluginFailure, one_line
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_llm.adapters import Adapters
from tavern_llm.api.llm import LLM, ChatMessage, LlmRequest, LlmResponse
from tavern_llm.failures import UNKNOWN
from tavern_llm.models import Channel, find_model, misconfigured, read_models

QUESTION = "Say hello in one short sentence."

SECONDS = 120.0
"""How long a server may take to answer: a model on this machine may have to be loaded first."""

OF_SERVERS = ("openai", "openai-responses", "anthropic", "gemini")
"""The adapters of this plugin that ask a server."""

_NAME = re.compile(r"[\w.:/@+-]{1,100}")


class Prober:
    """Finds out how a model that is not set up yet is reached. `options` are those of its adapter."""

    def __init__(
        self,
        context: PluginContext,
        name: str,
        adapter: str,
        options: dict[str, JsonValue],
        words: Mapping[str, str],
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{name!r} is no name for a model: letters, digits and ._-:/@+ without spaces")
        self.adapters = Adapters(context)
        self.words = words
        self.adapter = adapter
        self.options = options
        self.name = name

    @property
    def what(self) -> str:
        """The model as messages name it."""
        model, url = self.options.get("model"), self.options.get("base_url")
        return " at ".join(str(part) for part in (model, url) if part) or f"the adapter {self.adapter}"

    async def find(self, model: str, choose: Callable[[list[str]], Awaitable[str | None]]) -> None:
        """Set the address, and the model: the one that is asked for, the server's only one, or of several the one that
        is chosen. Raises `PluginFailure` where the server cannot be asked, `InvalidInput` where no model is meant."""
        if model:
            self.options["model"] = model
        try:
            listed = await self._listed()
        except PluginFailure as error:
            lists_none = error.info.details.get("status") in (404, 405, 501) or "cannot do" in error.message
            if not lists_none or not (model or self.adapter not in OF_SERVERS):
                raise
            return  # whether it has the model, it says when it is asked
        if model and listed and model not in listed:
            raise InvalidInput(
                f"the server has no model {model!r}{did_you_mean(model, listed)}; it has {one_line(', '.join(listed))}"
            )
        if not model and not listed:
            raise InvalidInput(f"the server lists no model; name one with {self.words['model']}")
        if not model:
            self.options["model"] = listed[0] if len(listed) == 1 else await choose(listed)
        if self.options["model"] is None:
            named = f"name one with {self.words['model']}: {one_line(', '.join(listed))}"
            raise InvalidInput(f"the server has {len(listed)} models; {named}", models=[*listed])

    async def answer(self) -> LlmResponse:
        """Return the model's answer to a short question. Raises as `call`."""
        response: LlmResponse = await self.call("complete", question(self.name))
        return response

    async def _listed(self) -> list[str]:
        """Return the server's models, asking under `/v1` as well where the address has no such part."""
        try:
            return list(await self.call("list_models"))
        except PluginFailure as error:
            address = str(self.options.get("base_url") or "/v1")
            is_elsewhere = error.info.details.get("status") in (None, 404, 405) and not error.info.retryable
            if not is_elsewhere or re.search(r"/v\d", address):
                raise
            self.options["base_url"] = f"{address.rstrip('/')}/v1"
            with suppress(PluginFailure):
                return list(await self.call("list_models"))
            self.options["base_url"] = address
            raise

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the adapter. Raises `InvalidInput` for wrong options, `PluginFailure`."""
        options = {"model": UNKNOWN, **self.options} if self.adapter in OF_SERVERS else self.options
        channel = Channel(self.name, "operator", 0, self.adapter, options)
        try:
            async with self.adapters.use(channel) as adapter, asyncio.timeout(SECONDS):
                return await adapter.method(method)(*arguments, system_call())
        except Misconfigured as error:
            text = error.message.removeprefix(misconfigured(channel, "").message)
            for option, asked in (("base_url", "url"), ("api_key_env", "key_env"), ("api_key", "key")):
                text = text.replace(option, self.words[asked])
            raise InvalidInput(text) from None
        except TimeoutError:
            raise PluginFailure(f"{self.what} did not answer within {SECONDS:.0f} s") from None


@asynccontextmanager
async def probing(
    context: PluginContext,
    name: str,
    adapter: str,
    *,
    url: str,
    key: str,
    key_env: str,
    replace: bool,
    words: Mapping[str, str],
) -> AsyncIterator[Prober]:
    """Open what sets up a model that is reached so. Raises `InvalidInput` where the options do not go together, and
    `Conflict` where the operator has a model of this name that is not to be replaced."""
    if key and key_env:
        raise InvalidInput(f"give {words['key']} or {words['key_env']}, not both")
    if not url and adapter.startswith("openai"):
        raise InvalidInput(f"{words['url']} is missing: the server's address, such as https://api.example.com/v1")
    options: dict[str, JsonValue] = {"base_url": url, "api_key": key, "api_key_env": key_env}
    prober = Prober(context, name, adapter, {option: value for option, value in options.items() if value}, words)
    if not replace and name in _present(context):
        raise Conflict(f"there is a model {name!r} already; {words['replace']} replaces it")
    try:
        yield prober
    finally:
        await prober.adapters.close()


async def keep(
    context: PluginContext,
    prober: Prober,
    *,
    default: bool = False,
    more: Mapping[str, JsonValue] | None = None,
    call: CallContext | None = None,
) -> bool:
    """Save a model that has answered, with what `more` is said of it, and return whether it is the default: if that is
    asked for, or where no other is that thinks."""
    name, others = prober.name, await context.services.get(LLM).models()
    is_default = default or all(model.is_scripted or model.name == name for model in others)
    entry: JsonValue = {"adapter": prober.adapter, **prober.options, **(more or {})}
    values: dict[str, JsonValue] = {"models": {**_present(context), name: entry}}
    await _save(context, values | ({"defaultModel": name} if is_default else {}), call)
    return is_default


async def choose(context: PluginContext, name: str, call: CallContext | None = None) -> str:
    """Save the default model, and return the one in force."""
    find_model(name, read_models(context.settings.layers("models")))
    await _save(context, {"defaultModel": name}, call)
    return str(context.settings.get("defaultModel"))


async def forget(context: PluginContext, name: str, call: CallContext | None = None) -> bool:
    """Take a model out of the operator's settings, and return whether it was the default; one that others stand for
    stays."""
    layers, present = context.settings.layers("models"), _present(context)
    if name not in present:
        setups = read_models(layers)
        layer = (setups.get(name) or find_model(name, setups)).layer
        raise InvalidInput(f"{name!r} stands in the {layer}'s settings, not in yours: take it out there")
    values: dict[str, JsonValue] = {"models": {key: value for key, value in present.items() if key != name}}
    was_default = context.settings.layers("defaultModel").get("operator") == name
    await _save(context, values | ({"defaultModel": ""} if was_default else {}), call)
    return was_default


async def try_model(
    context: PluginContext, name: str | None, call: CallContext | None = None
) -> tuple[LlmResponse, float]:
    """Ask a model through the service, as others do; return the answer, and the seconds that it took."""
    began = time.perf_counter()
    response = await context.services.get(LLM).complete(question(name), call=call)
    return response, time.perf_counter() - began


def question(model: str | None) -> LlmRequest:
    """Return the short request with which a model is tried."""
    return LlmRequest(messages=[ChatMessage(role="user", content=QUESTION)], model=model)


def said(response: LlmResponse) -> str:
    """Return the text of an answer in one line."""
    return one_line(response.text) or "(an answer without text)"


def _present(context: PluginContext) -> Mapping[str, JsonValue]:
    present: Mapping[str, JsonValue] = context.settings.layers("models").get("operator", {})
    return present


async def _save(context: PluginContext, values: dict[str, JsonValue], call: CallContext | None) -> None:
    await context.services.get(SETTINGS).save(SettingsChange(plugin=context.plugin, values=values), call=call)
