"""The `llm` service: finds the model that a request names, asks its channels, and runs the two LLM hooks.

How a model is reached is the adapters' business; which there are is `models.py`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import require_admitted
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured, NotFound, PluginFailure, TavernError
from tavern_host.contracts.metrics import Tally
from tavern_llm import State
from tavern_llm.adapters import Adapters, OpenAdapter
from tavern_llm.answers import pieces_of
from tavern_llm.api.llm import Llm, LlmChunk, LlmEmbeddings, LlmModelInfo, LlmRequest, LlmResponse, LlmUsage
from tavern_llm.api.spans import Tell, of_answer, of_usage, span
from tavern_llm.attempts import Attempts, ChannelStates, Turns
from tavern_llm.budgets import SETTING as BUDGETS
from tavern_llm.budgets import Budgets, Charge, budgets_problem, estimated_tokens, prompt_tokens
from tavern_llm.models import DEFAULT, SETTING, ModelSetup, check_setup, find_model, read_models

T = TypeVar("T", LlmResponse, LlmEmbeddings)

MOST_CHARACTERS = 4 << 20
"""The longest answer that is streamed, its thoughts and the arguments of its calls included."""

BEFORE = "tavern_before_llm_request"
AFTER = "tavern_after_llm_response"


@dataclass
class _Model:
    """A model with what all of its requests share."""

    setup: ModelSetup
    states: ChannelStates
    turns: Turns


@dataclass
class _Session:
    """One request with a model that has its turn."""

    model: _Model
    attempts: Attempts
    charge: Charge | None
    call: CallContext
    tell: Tell
    tokens: Tally

    def answered(self, request: LlmRequest, response: LlmResponse) -> None:
        """Count a whole answer, and let its span say what it was."""
        self.count(response.usage)
        self.tell(of_answer(request, response))
        if self.charge is not None:
            self.charge.answered(response)

    def count(self, usage: LlmUsage) -> None:
        """Count the tokens that a model says it used."""
        for kind, tokens in (("prompt", usage.prompt_tokens), ("completion", usage.completion_tokens)):
            if tokens:
                self.tokens.add(self.model.setup.name, kind, count=tokens)


class LlmService(Llm):
    """The models that the settings set up, each opened when it is first asked."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._adapters = Adapters(context)
        self._budgets = Budgets(context)
        self._models: dict[str, _Model] = {}
        self._setups: dict[str, ModelSetup] = {}
        self._settings_revision: int | None = None
        self._state = context.own(State)

    async def models(self) -> list[LlmModelInfo]:
        """Return the models that can be used, by name; what is wrong with the others is in the log."""
        found, problems = await self.survey()
        for problem in problems:
            self._context.log.warning("%s", problem)
        return found

    async def survey(self) -> tuple[list[LlmModelInfo], list[str]]:
        """Return the models that can be used, by name, and what is wrong with the others."""
        adapters, setups = await self._adapters.infos(), self._current_setups()
        default = self._default(setups)
        found, problems = [], []
        for name in sorted({*setups, *filter(None, [default])}):
            try:
                setup = find_model(name, setups)
                check_setup(setup, adapters)
                found.append(setup.info(name, default))
            except (Misconfigured, NotFound) as error:
                problems.append(error.message)
        return found, problems

    async def complete(self, request: LlmRequest, *, call: CallContext | None = None) -> LlmResponse:
        """Return a model's whole answer; see `Llm.complete`."""
        call = call or system_call()
        request = await self._before(request, call)
        async with self._session("chat", request.model, lambda: prompt_tokens(request), call) as session:
            asked = request.model_copy(update={"model": session.model.setup.name})
            response = await self._retried(
                session, lambda adapter: adapter.target.complete(self._sent(asked, adapter), call), LlmResponse
            )
            session.answered(asked, response)
        return await self._after(_named(response, asked), request, call)

    async def stream(self, request: LlmRequest, *, call: CallContext | None = None) -> AsyncIterator[LlmChunk]:
        """Yield a model's answer piece by piece; see `Llm.stream`.

        Where a plugin reviews answers, it must see the whole one first: then all comes at the end.
        """
        call = call or system_call()
        request = await self._before(request, call)
        reviewed = self._context.hooks.implemented(AFTER)
        async with self._session("chat", request.model, lambda: prompt_tokens(request), call) as session:
            asked = request.model_copy(update={"model": session.model.setup.name})
            response: LlmResponse | None = None
            async with aclosing(self._streamed(session, asked)) as chunks:
                async for chunk in chunks:
                    if chunk.response is not None:
                        response = _named(chunk.response, asked)
                        session.answered(asked, response)
                        chunk = chunk.model_copy(update={"response": response})
                    if not reviewed:
                        yield chunk
        if reviewed:
            assert response is not None
            for chunk in pieces_of(await self._after(response, request, call)):
                yield chunk

    async def embed(
        self, texts: list[str], *, model: str | None = None, call: CallContext | None = None
    ) -> LlmEmbeddings:
        """Return the vector of each text; see `Llm.embed`."""
        call = call or system_call()
        await require_admitted(self._context.services, call)
        name = model if model is not None else self._default(self._current_setups())
        async with self._session("embeddings", name, lambda: estimated_tokens(*texts), call) as session:
            found = await self._retried(session, lambda adapter: adapter.method("embed")(texts, call), LlmEmbeddings)
            session.tell(of_usage(found.usage))
            session.count(found.usage)
            if session.charge is not None:
                session.charge.done(found.usage)
        return found.model_copy(update={"model": session.model.setup.name})

    async def count_tokens(self, request: LlmRequest, *, call: CallContext | None = None) -> int | None:
        """Return how many tokens the prompt of a request has; see `Llm.count_tokens`."""
        call = call or system_call()
        request = await self._before(request, call)
        setup = self._model(request.model).setup
        check_setup(setup, await self._adapters.infos())
        try:
            async with self._adapters.use(setup.channels[0]) as adapter, _deadline(_expires(call), setup.name):
                asked = request.model_copy(update={"model": setup.name})
                found: int = await adapter.method("count_tokens")(self._sent(asked, adapter), call)
                return found
        except PluginFailure as error:
            if error.info.details.get("missing") == "count_tokens":
                return None
            raise

    async def close(self) -> None:
        """Close every open adapter."""
        await self._adapters.close()
        await self._budgets.close()

    async def why_not(self, values: Mapping[str, JsonValue]) -> str | None:
        """Return why values that the operator wants to save, by full key, cannot be used; None where they can."""
        adapters = await self._adapters.infos()
        layers = dict(self._context.settings.layers("models"))
        if values.get(SETTING) is not None:
            layers["operator"] = values[SETTING]
        try:
            setups = read_models(layers)
            for name, setup in setups.items() if SETTING in values else ():
                if setup.layer == "operator":
                    check_setup(setup if setup.problem else find_model(name, setups), adapters)
            if values.get(DEFAULT):
                find_model(str(values[DEFAULT]), setups)
        except (Misconfigured, NotFound) as error:
            return error.message
        if values.get(BUDGETS) is not None and (problem := budgets_problem(values[BUDGETS])):
            return f"{BUDGETS}: {problem}"
        return None

    # --- hooks --------------------------------------------------------------------------------------

    async def _before(self, request: LlmRequest, call: CallContext) -> LlmRequest:
        await require_admitted(self._context.services, call)
        if request.model is None:
            request = request.model_copy(update={"model": self._default(self._current_setups())})
        if self._context.hooks.implemented(BEFORE):
            request = await self._context.hooks.filter(BEFORE, request, call=call)
        return request

    async def _after(self, response: LlmResponse, request: LlmRequest, call: CallContext) -> LlmResponse:
        if self._context.hooks.implemented(AFTER):
            response = await self._context.hooks.filter(AFTER, response, request=request, call=call)
        return response

    # --- models -------------------------------------------------------------------------------------

    def _current_setups(self) -> dict[str, ModelSetup]:
        """Return the models that are set up, read again where a setting has changed."""
        revision = self._context.settings.revision
        if revision != self._settings_revision:
            self._setups = read_models(self._context.settings.layers("models"))
            self._settings_revision = revision
        return self._setups

    def _default(self, setups: Mapping[str, ModelSetup]) -> str | None:
        chosen = self._context.settings.get("defaultModel", "")
        if chosen:
            return str(chosen)
        return next(iter(setups)) if len(setups) == 1 else None

    def _model(self, name: str | None) -> _Model:
        setup = find_model(name, self._current_setups())
        known = self._models.get(setup.name)
        if known is None or known.setup != setup:
            options = setup.options
            turns = Turns(options.concurrency, options.queue)
            known = self._models[setup.name] = _Model(setup, ChannelStates(len(setup.channels)), turns)
        return known

    # --- one request --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(
        self, operation: str, name: str | None, prompt: Callable[[], int], call: CallContext
    ) -> AsyncIterator[_Session]:
        """Hold a request to the budget of its principal and wait for its turn."""
        model = self._model(name)
        check_setup(model.setup, await self._adapters.infos())
        about = {"provider.name": model.setup.channels[0].adapter, "request.model": name}
        with span(operation, str(name), call, about, is_client=True) as tell:
            async with self._budgets.charged(call.principal, prompt) as charge:
                async with _deadline(_expires(call), model.setup.name):
                    await model.turns.enter(model.setup.name)
                try:
                    seconds = model.setup.options.retry_seconds
                    attempts = Attempts(model.setup.name, model.states, seconds, call)
                    with self._counted(model.setup.name):
                        yield _Session(model, attempts, charge, call, tell, self._state.tokens)
                finally:
                    model.turns.leave()

    @contextmanager
    def _counted(self, model: str) -> Iterator[None]:
        began, status = time.perf_counter(), "cancelled"
        try:
            yield
            status = "done"
        except Exception:
            status = "error"
            raise
        finally:
            self._state.requests.add(model, status, seconds=time.perf_counter() - began)

    async def _retried(self, session: _Session, ask: Callable[[OpenAdapter], Awaitable[Any]], kind: type[T]) -> T:
        """Return the answer of the first channel that gives one, an object of the type `kind`."""
        setup, attempts = session.model.setup, session.attempts
        while True:
            channel = await attempts.next()
            try:
                async with self._adapters.use(setup.channels[channel]) as adapter:
                    async with _deadline(_expires(session.call), setup.name):
                        found: T = await ask(adapter)
                    if not isinstance(found, kind):
                        raise adapter.unexpected(found, kind)
                return found
            except TavernError as error:
                attempts.failed(channel, error)

    def _sent(self, request: LlmRequest, adapter: OpenAdapter) -> LlmRequest:
        """Return a request as an adapter gets it: our own shares its messages."""
        return request if adapter.plugin == self._context.plugin else request.owned()

    async def _streamed(self, session: _Session, request: LlmRequest) -> AsyncGenerator[LlmChunk]:
        """Yield the chunks of the first channel that answers to the end.

        One that fails before it has given anything is passed over in silence; after that, a chunk says that the
        answer restarts.
        """
        setup, attempts, charge = session.model.setup, session.attempts, session.charge
        while True:
            channel = await attempts.next()
            is_begun = False
            try:
                async with (
                    self._adapters.use(setup.channels[channel]) as adapter,
                    aclosing(_chunks(adapter, self._sent(request, adapter), session.call)) as chunks,
                ):
                    async for chunk in chunks:
                        if charge is not None:
                            charge.saw(chunk)
                        is_begun = True
                        yield chunk
                return
            except TavernError as error:
                if charge is not None:
                    charge.broke_off()
                attempts.failed(channel, error)
                if is_begun:
                    yield LlmChunk(restarted=f"The answer broke off and restarts: {error.message}.")


async def _chunks(adapter: OpenAdapter, request: LlmRequest, call: CallContext) -> AsyncGenerator[LlmChunk]:
    """Yield what an adapter streams. Raises `PluginFailure` where that is too long, or has no whole answer at its
    end."""
    chunks = adapter.target.stream(request, call)
    last: LlmChunk | None = None
    size = 0
    expires = _expires(call)
    try:
        while True:
            async with _deadline(expires, adapter.channel.model):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            if not isinstance(chunk, LlmChunk):
                raise adapter.unexpected(chunk, LlmChunk)
            size += len(chunk.text) + len(chunk.reasoning) + (len(chunk.call.arguments) if chunk.call else 0)
            if size > MOST_CHARACTERS:
                text = f"the model {adapter.channel.model!r} gave more than {MOST_CHARACTERS:,} characters"
                raise PluginFailure(f"{text}; the answer was cut off")
            last = chunk
            yield chunk
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    if last is None or last.response is None:
        text = f"the adapter {adapter.channel.adapter!r} of {adapter.plugin} ended a stream without the whole answer"
        raise PluginFailure(text, plugin=adapter.plugin)


def _named(response: LlmResponse, request: LlmRequest) -> LlmResponse:
    """Return an answer under the name by which the model is set up, whatever its server calls it."""
    return response.model_copy(update={"model": request.model})


def _expires(call: CallContext) -> float | None:
    """Return when the call's deadline is, by the clock of the running loop."""
    remaining = call.remaining()
    return None if remaining is None else asyncio.get_running_loop().time() + remaining


def _deadline(expires: float | None, model: str) -> AbstractAsyncContextManager[object]:
    """Cancel what runs inside at the call's deadline, as `_expires` gives it. Raises `DeadlineExceeded`."""
    return nullcontext() if expires is None else _limited(expires, model)


@asynccontextmanager
async def _limited(expires: float, model: str) -> AsyncIterator[None]:
    timer = asyncio.timeout_at(expires)
    try:
        async with timer:
            yield
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlineExceeded(f"the model {model!r} did not answer before the deadline of the call") from None
