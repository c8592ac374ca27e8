"""`tavern models list|add|test|remove|default`: from an address and a key to a model that answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import CommandOutput, PluginContext
from tavern_host.common.redaction import short_note
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_llm.api.llm import LLM, LlmModelInfo
from tavern_llm.failures import secrets_of
from tavern_llm.models import HOW_TO_ADD
from tavern_llm.probing import choose, forget, keep, probing, said, try_model
from tavern_llm.service import LlmService

FLAGS = {"url": "--url", "key": "--key", "key_env": "--key-env", "model": "--model", "replace": "--replace"}


async def list_models(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
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


async def add_model(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Find the model at its server, try it, save it; nothing is saved where it does not answer."""
    name, adapter = arguments["name"], arguments["adapter"]
    url, key, variable = (arguments[option] or "" for option in ("url", "key", "key_env"))
    if key == "-" and not variable:
        key = (await asyncio.to_thread(sys.stdin.readline)).strip()
    async with probing(
        context, name, adapter, url=url, key=key, key_env=variable, replace=arguments["replace"], words=FLAGS
    ) as prober:
        if url:
            yield CommandOutput(kind="progress", text="Asking the server what it has")
        await prober.find(arguments["model"] or "", _choice)
        yield CommandOutput(kind="progress", text=f"Trying {prober.what}")
        response = await prober.answer()
    is_default = await keep(context, prober, default=arguments["default"])
    default = ", as the default" if is_default else f"; `tavern models default {name}` makes it the default"
    yield CommandOutput(kind="message", text=f"{name} is set up: {prober.what}{default}.\nIt says: {said(response)}")
    if note := short_note(secrets_of(prober.options)):
        yield CommandOutput(kind="progress", text=f"Warning: {note}")
    data: dict[str, Any] = {"name": name, "adapter": prober.adapter, "isDefault": is_default}
    shown = {"baseUrl": prober.options.get("base_url"), "model": prober.options.get("model")}
    yield CommandOutput(kind="result", data={**data, **shown, "response": response.to_json()})


async def test_model(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Ask a model through the service, as others do."""
    name = arguments["name"] or None
    response, seconds = await try_model(context, name)
    models = await context.services.get(LLM).models()
    model = next((m for m in models if (m.name == name if name else m.is_default)), None)
    used = response.usage
    tokens = f", {used.prompt_tokens or 0} + {used.completion_tokens or 0} tokens" if used.to_json() else ""
    shown = f"{model.name} ({_note(model)})" if model is not None else response.model
    yield CommandOutput(kind="message", text=f"{shown} answered in {seconds:.1f} s{tokens}: {said(response)}")
    for notice in response.notices:
        yield CommandOutput(kind="progress", text=notice)
    data: dict[str, Any] = {"model": model.to_json() if model is not None else None, "seconds": round(seconds, 3)}
    yield CommandOutput(kind="result", data={**data, "response": response.to_json()})


async def set_default(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Save the default model."""
    chosen = await choose(context, name := arguments["name"])
    above = "" if chosen == name else f", but the environment (TAVERN_SETTINGS) sets {chosen!r}, which stays in force"
    yield CommandOutput(kind="message", text=f"{name} is the default model{above}.")
    yield CommandOutput(kind="result", data={"name": chosen})


async def remove_model(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Take a model out of the operator's settings; one that others stand for stays."""
    was_default = await forget(context, name := arguments["name"])
    default = "; it was the default, `tavern models default NAME` chooses another" if was_default else ""
    yield CommandOutput(kind="message", text=f"{name} is removed{default}.")
    yield CommandOutput(kind="result", data={"name": name, "wasDefault": was_default})


async def _choice(models: list[str]) -> str | None:
    """Return the model that the person at the terminal chooses, None where there is nobody."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    for number, model in enumerate(models, 1):
        print(f"{number:4}  {model}", file=sys.stderr)
    print("Which one? Number or name: ", end="", file=sys.stderr, flush=True)
    answer: str = (await asyncio.to_thread(sys.stdin.readline)).strip()
    if answer.isdecimal() and 1 <= int(answer[:6]) <= len(models):
        return models[int(answer[:6]) - 1]
    if answer in models:
        return answer
    raise InvalidInput(f"the server has no model {answer!r}{did_you_mean(answer, models)}")


def _note(model: LlmModelInfo) -> str:
    """Return how a model is reached, as a table shows it."""
    note = f"{model.adapter}: plays replies from a file" if model.is_scripted else model.adapter
    alias = f", alias of {model.alias_of}" if model.alias_of else ""
    return note + alias + (", default" if model.is_default else "")


def _prices(model: LlmModelInfo) -> str:
    prices = model.price_input, model.price_output
    return " / ".join("?" if price is None else f"{price:g}" for price in prices) if any(prices) else ""
