"""Passes on what comes of an answer, with signs of life while nothing does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress

from tavern_host.context import PluginContext
from tavern_llm.api.llm import LlmCallFragment, LlmChunk, LlmResponse

ALIVE = 10.0
"""Seconds after which a client that nothing came for is sent a sign of life."""

_MOST = 64
_STALLED = 300.0
"""Seconds after which the work for a client that takes nothing more of its answer ends."""


class _Stalled(Exception):
    """Nobody takes more of an answer."""


async def begun(chunks: AsyncIterator[LlmChunk], context: PluginContext) -> AsyncGenerator[LlmChunk | None]:
    """Return an answer once it has begun, or after `ALIVE` seconds: what fails before that can still be said by a
    status. Raises what the answer fails with until then."""
    passed = _passed(chunks, context)
    try:
        first = await anext(passed, None)
    except BaseException:
        await passed.aclose()
        raise
    return _behind(first, passed)


async def _behind(first: LlmChunk | None, passed: AsyncGenerator[LlmChunk | None]) -> AsyncGenerator[LlmChunk | None]:
    """Yield an answer from its first chunk on. What stands in the whole of it alone comes before that."""
    calls, has_text = 0, False
    async with aclosing(passed):
        one = first
        while True:
            if one is not None:
                calls = max(calls, one.call.index + 1) if one.call is not None else calls
                has_text = has_text or bool(one.text)
                for missing in _missing(one.response, calls, has_text) if one.response is not None else ():
                    yield missing
            yield one
            try:
                one = await anext(passed)
            except StopAsyncIteration:
                return


def _missing(answer: LlmResponse, calls: int, has_text: bool) -> Iterator[LlmChunk]:
    if answer.text and not has_text:
        yield LlmChunk(text=answer.text)
    for index, call in enumerate(answer.tool_calls[calls:], calls):
        yield LlmChunk(call=LlmCallFragment(index=index, id=call.id, name=call.name, arguments=call.arguments))


async def _passed(chunks: AsyncIterator[LlmChunk], context: PluginContext) -> AsyncGenerator[LlmChunk | None]:
    """Yield what comes, and None where nothing does for a while. One task takes it all, in whose context the answer
    begins and ends."""
    come: asyncio.Queue[LlmChunk | Exception | None] = asyncio.Queue(_MOST)

    async def give(one: LlmChunk | Exception | None) -> None:
        try:
            async with asyncio.timeout(_STALLED):
                await come.put(one)
        except TimeoutError:
            raise _Stalled from None

    async def answer() -> None:
        async with aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                await give(chunk)

    async def take() -> None:
        with suppress(_Stalled):
            try:
                await answer()
            except _Stalled:
                raise
            except Exception as error:
                await give(error)
            await give(None)

    taking = context.tasks.spawn(take(), name="answer a client of OpenAI's API")
    try:
        while True:
            try:
                async with asyncio.timeout(ALIVE):
                    one = await come.get()
            except TimeoutError:
                if taking.done() and come.empty():  # cut off by the end of the plugin
                    return
                yield None
                continue
            if one is None:
                return
            if isinstance(one, Exception):
                raise one
            yield one
    finally:
        taking.cancel()
        await asyncio.wait([taking])
