"""The language models over HTTP: which there are, set one up, try it, choose the default, forget one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field

from tavern_host import PluginContext
from tavern_host.common.redaction import short_note
from tavern_host.contracts.errors import PluginFailure, ServiceUnavailable
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import LLM, LlmResponse
from tavern_llm.failures import secrets_of
from tavern_llm.probing import choose, forget, keep, probing, said, try_model

_WORDS = {"url": "`url`", "key": "`key`", "key_env": "`keyEnv`", "model": "`model`", "replace": "`replace`"}


class NewModel(Model):
    """A model to be set up: how it is called here, its server's address, and the server's name for it, which may be
    left out where it has one alone. `key` is kept encrypted and never shown; `key_env` names a variable of the server's
    environment instead. Prices are for a million tokens."""

    name: str
    url: str = ""
    key: str = Field(default="", repr=False)
    key_env: str = ""
    model: str = ""
    adapter: str = "openai"
    context_tokens: int | None = Field(default=None, gt=0)
    price_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    price_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    default: bool = False
    replace: bool = False


class ModelName(Model):
    """A model by its name here."""

    name: str


class ModelAnswer(Model):
    """What a model said when it was tried. `model` is the server's name for it, where it was just set up."""

    name: str
    text: str
    seconds: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    notices: list[str] = Field(default_factory=list)
    model: str | None = None
    is_default: bool | None = None


async def list_models(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the models that can be used, by name."""
    return HttpResponse(data={"models": [model.to_json() for model in await context.services.get(LLM).models()]})


async def add(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Find a model at its server, try it, save it; nothing is saved where it does not answer."""
    asked = request.read(NewModel)
    fields = asked.model_dump(include={"url", "key", "key_env", "replace"}, by_alias=False)
    async with probing(context, asked.name, asked.adapter, **fields, words=_WORDS) as prober:
        with _of_the_server():
            await prober.find(asked.model, _nobody)
            response = await prober.answer()
    further = {"context_tokens", "price_input", "price_output"}
    more = asked.model_dump(include=further, exclude_none=True, by_alias=False)
    is_default = await keep(context, prober, default=asked.default, more=more, call=request.call)
    model, note = str(prober.options.get("model") or ""), short_note(secrets_of(prober.options))
    answer = _answer(asked.name, response, model=model, is_default=is_default)
    notices = [*answer.notices, *([note] if note else [])]
    return HttpResponse(data=answer.model_copy(update={"notices": notices}).to_json())


async def test(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Ask a model a short question, as others ask it."""
    name = request.read(ModelName).name
    with _of_the_server():
        response, seconds = await try_model(context, name, request.call)
    return HttpResponse(data=_answer(name, response, seconds=round(seconds, 3)).to_json())


async def set_default(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Choose the default model; answer with the one in force."""
    chosen = await choose(context, request.read(ModelName).name, request.call)
    return HttpResponse(data=ModelName(name=chosen).to_json())


async def remove(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Forget a model that the operator set up."""
    await forget(context, name := request.parameters["name"], request.call)
    return HttpResponse(data=ModelName(name=name).to_json())


async def _nobody(models: list[str]) -> None:
    """Choose no model: who asks names one in another request."""


@contextmanager
def _of_the_server() -> Iterator[None]:
    """Let what a model's server says be no failure of this plugin."""
    try:
        yield
    except PluginFailure as error:
        raise ServiceUnavailable(error.message) from None


def _answer(name: str, response: LlmResponse, **more: float | str | bool) -> ModelAnswer:
    used = response.usage
    return ModelAnswer.model_validate(
        {
            "name": name,
            "text": said(response),
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "notices": response.notices,
            **more,
        }
    )
