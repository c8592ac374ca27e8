"""The `llm` service: finds the model that a request names, asks its adapter, and runs the two LLM hooks.

How a model is reached is the adapters' business; which there are is `models.py`'s.
"""

from __future__ import annotations

import asyncio
import difflib
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_host.context import Contribution, PluginContext
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import (
    DeadlineExceeded,
    Misconfigured,
    NotFound,
    PluginFailure,
    TavernError,
    describe,
)
from tavern_host.contracts.llm import (
    Llm,
    LlmAdapter,
    LlmAdapterInfo,
    LlmChunk,
    LlmModelInfo,
    LlmRequest,
    LlmResponse,
)
from tavern_host.contracts.names import did_you_mean
from tavern_llm.failures import redact, secrets_of
from tavern_llm.models import DEFAULT, SETTING, ModelSetup, check_setup, read_models

BEFORE = "tavern_before_llm_request"
AFTER = "tavern_after_llm_response"
ADAPTERS = "tavern_register_llm_adapters"


@dataclass
class _OpenModel:
    """A model whose adapter is open; closed once it is out of date and nobody uses it."""

    setup: ModelSetup
    info: LlmAdapterInfo
    provider: Contribution[Any]
    revision: int
    adapter: LlmAdapter
    users: int = 0
    retired: bool = False

    @property
    def plugin(self) -> str:
        """Whose adapter it is."""
        return self.provider.plugin


class LlmService(Llm):
    """The models that the settings set up, each opened when it is first asked."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision: int | None = None
        self._adapters: dict[str, LlmAdapterInfo | list[str]] = {}
        self._providers: dict[str, Contribution[Any]] = {}
        self._open: dict[str, _OpenModel] = {}

    async def models(self) -> list[LlmModelInfo]:
        """Return the models that can be used, by name; what is wrong with the others is in the log."""
        await self._collect()
        setups = self._setups()
        default = self._default(setups)
        found = []
        for name, setup in sorted(setups.items()):
            try:
                check_setup(setup, self._adapters)
            except Misconfigured as error:
                self._context.log.warning("%s", error.message)
                continue
            found.append(LlmModelInfo(name=name, adapter=setup.adapter, is_default=name == default))
        return found

    async def complete(self, request: LlmRequest, *, call: CallContext | None = None) -> LlmResponse:
        """Return a model's whole answer; see `Llm.complete`."""
        call = call or system_call()
        request = await self._before(request, call)
        async with self._model(request.model) as model:
            asked = request.model_copy(update={"model": model.setup.name})
            with self._attributed(model):
                async with _deadline(call, model.setup.name):
                    response = await model.adapter.complete(asked, call)
                _expect(response, LlmResponse, model)
        return await self._after(response, request, call)

    async def stream(self, request: LlmRequest, *, call: CallContext | None = None) -> AsyncIterator[LlmChunk]:
        """Yield a model's answer piece by piece; see `Llm.stream`.

        Where a plugin reviews answers, it must see the whole one first: then all comes at the end.
        """
        call = call or system_call()
        request = await self._before(request, call)
        async with self._model(request.model) as model:
            asked = request.model_copy(update={"model": model.setup.name})
            chunks = model.adapter.stream(asked, call)
            reviewed = self._context.hooks.implemented(AFTER)
            held: list[LlmChunk] = []
            try:
                while (chunk := await self._next(chunks, model, call)) is not None:
                    if reviewed:
                        held.append(chunk)
                    else:
                        yield chunk
            finally:
                close = getattr(chunks, "aclose", None)
                if close is not None:
                    await close()
            if reviewed:
                response = await self._after(_whole(held, model), request, call)
                yield LlmChunk(text=response.text)
                yield LlmChunk(response=response)

    async def close(self) -> None:
        """Close every open adapter."""
        models, self._open = list(self._open.values()), {}
        for model in models:
            await self._close(model)

    async def _before(self, request: LlmRequest, call: CallContext) -> LlmRequest:
        if request.model is None:
            request = request.model_copy(update={"model": self._default(self._setups())})
        if self._context.hooks.implemented(BEFORE):
            request = await self._context.hooks.filter(BEFORE, request, call=call)
        return request

    async def _after(self, response: LlmResponse, request: LlmRequest, call: CallContext) -> LlmResponse:
        if self._context.hooks.implemented(AFTER):
            response = await self._context.hooks.filter(AFTER, response, request=request, call=call)
        return response

    async def _next(self, chunks: AsyncIterator[LlmChunk], model: _OpenModel, call: CallContext) -> LlmChunk | None:
        with self._attributed(model):
            async with _deadline(call, model.setup.name):
                chunk = await anext(chunks, None)
            if chunk is not None:
                _expect(chunk, LlmChunk, model)
            return chunk

    def _setups(self) -> dict[str, ModelSetup]:
        return read_models(self._context.settings.layers("models"))

    async def why_not(self, values: Mapping[str, JsonValue]) -> str | None:
        """Return why values that the operator wants to save, by full key, cannot be used; None where they can."""
        await self._collect()
        layers = dict(self._context.settings.layers("models"))
        if values.get(SETTING) is not None:
            layers["operator"] = values[SETTING]
        try:
            setups = read_models(layers)
            for setup in setups.values() if SETTING in values else ():
                if setup.layer == "operator":
                    check_setup(setup, self._adapters)
        except Misconfigured as error:
            return error.message
        chosen = values.get(DEFAULT)
        if chosen and chosen not in setups:
            there_is = ", ".join(sorted(setups)) or f"none; set {SETTING} first"
            near = did_you_mean(str(chosen), setups)
            return f"{DEFAULT}: there is no language model {chosen!r}{near}; there is {there_is}"
        return None

    def _default(self, setups: dict[str, ModelSetup]) -> str | None:
        chosen = self._context.settings.get("defaultModel", "")
        if chosen:
            return str(chosen)
        return next(iter(setups)) if len(setups) == 1 else None

    async def _collect(self) -> None:
        """Collect the adapters again if plugins have come or gone."""
        revision = self._context.hooks.revision
        if revision == self._revision:
            return
        providers: dict[str, Contribution[Any]] = {}
        adapters: dict[str, LlmAdapterInfo | list[str]] = {}
        for contribution in await self._context.hooks.collect(ADAPTERS):
            for info in contribution.value:
                known = adapters.get(info.name)
                if known is None:
                    adapters[info.name] = info
                    providers[info.name] = contribution
                elif isinstance(known, list):
                    known.append(contribution.plugin)
                else:
                    adapters[info.name] = [providers.pop(info.name).plugin, contribution.plugin]
        self._adapters, self._providers, self._revision = adapters, providers, revision
        for name, known in adapters.items():
            if isinstance(known, list):
                self._report_contended(name, known)

    def _report_contended(self, name: str, plugins: list[str]) -> None:
        message = f"the adapter {name!r} is provided by {' and '.join(plugins)}; none of them is used"
        for plugin in dict.fromkeys(plugins):
            hint = f"keep one alone, such as with `tavern plugins disable {plugin}`"
            if set(plugins) == {plugin}:
                hint = "return each adapter once"
            self._context.hooks.report(plugin, message, hint=hint)

    @asynccontextmanager
    async def _model(self, name: str | None) -> AsyncIterator[_OpenModel]:
        """Give an open model for the length of one request."""
        await self._collect()
        model = await self._opened(self._setup(name))
        model.users += 1
        try:
            with model.provider.in_use():
                yield model
        finally:
            model.users -= 1
            if model.retired and not model.users:
                await self._close(model)

    def _setup(self, name: str | None) -> ModelSetup:
        setups = self._setups()
        if name is not None and name in setups:
            return setups[name]
        if not setups:
            raise Misconfigured(
                f"no language model is set up; set {SETTING}: in the project with the adapter 'scripted', "
                "or in the operator's host.yaml with 'openai'"
            )
        there_is = ", ".join(sorted(setups))
        if name is None:
            raise Misconfigured(
                f"the request names no model and there is no default; set extensions.tavern-llm.defaultModel "
                f"to one of: {there_is}"
            )
        near = difflib.get_close_matches(name, setups, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {there_is}"
        raise NotFound(f"there is no language model {name!r} ({hint})", model=name)

    async def _opened(self, setup: ModelSetup) -> _OpenModel:
        info = check_setup(setup, self._adapters)
        provider = self._providers[setup.adapter]
        model = self._open.get(setup.name)
        if model is not None and self._is_current(model, setup, info, provider.plugin):
            return model
        try:
            adapter: LlmAdapter = provider.open(info.handler, dict(setup.options))
        except TavernError as error:
            text = redact(error.message, secrets_of(setup.options))
            raise Misconfigured(f"the model {setup.name!r} in the {setup.layer}'s setting {SETTING}: {text}") from None
        except Exception as error:
            raise self._failure(error, setup, provider.plugin) from None
        assert self._revision is not None
        self._open[setup.name] = _OpenModel(setup, info, provider, self._revision, adapter)
        if model is not None:
            model.retired = True
            if not model.users:
                await self._close(model)
        return self._open[setup.name]

    def _is_current(self, model: _OpenModel, setup: ModelSetup, info: LlmAdapterInfo, plugin: str) -> bool:
        """Whether an open model still is what is asked for. Another plugin's adapter may have been replaced
        whenever plugins changed; our own goes with this service."""
        same = (model.setup, model.info, model.plugin) == (setup, info, plugin)
        return same and (plugin == self._context.plugin or model.revision == self._revision)

    async def _close(self, model: _OpenModel) -> None:
        try:
            await model.adapter.close()
        except Exception as error:
            self._log(error, model.setup, model.plugin)

    @contextmanager
    def _attributed(self, model: _OpenModel) -> Iterator[None]:
        """Turn what an adapter raises into an error that names it and holds no key."""
        try:
            yield
        except TavernError as error:
            if redact(error.message, secrets_of(model.setup.options)) == error.message:
                raise
            raise self._failure(error, model.setup, model.plugin) from None
        except Exception as error:
            raise self._failure(error, model.setup, model.plugin) from None

    def _failure(self, error: Exception, setup: ModelSetup, plugin: str) -> PluginFailure:
        text = self._log(error, setup, plugin)
        return PluginFailure(f"the adapter {setup.adapter!r} of {plugin} failed: {text}", plugin=plugin)

    def _log(self, error: Exception, setup: ModelSetup, plugin: str) -> str:
        """Log where an adapter failed and return what it said. The traceback is written without the
        exception's own text, which may quote a key."""
        said = error.message if isinstance(error, TavernError) else describe(error)
        text = redact(said, secrets_of(setup.options))
        frames = "".join(traceback.format_tb(error.__traceback__))
        self._context.log.error("the adapter %r of %s failed: %s\n%s", setup.adapter, plugin, text, frames)
        return text


@asynccontextmanager
async def _deadline(call: CallContext, model: str) -> AsyncIterator[None]:
    """Cancel what runs inside at the call's deadline. Raises `DeadlineExceeded`."""
    remaining = call.remaining()
    if remaining is None:
        yield
        return
    timer = asyncio.timeout(remaining)
    try:
        async with timer:
            yield
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlineExceeded(f"the model {model!r} did not answer before the deadline of the call") from None


def _expect(value: object, kind: type, model: _OpenModel) -> None:
    if not isinstance(value, kind):
        found = type(value).__name__
        text = f"the adapter {model.setup.adapter!r} of {model.plugin} returned {found}, expected {kind.__name__}"
        raise PluginFailure(text, plugin=model.plugin)


def _whole(chunks: list[LlmChunk], model: _OpenModel) -> LlmResponse:
    """Return the whole answer that the last chunk brings. Raises `PluginFailure` where none does."""
    response = chunks[-1].response if chunks else None
    _expect(response, LlmResponse, model)
    assert response is not None
    return response
