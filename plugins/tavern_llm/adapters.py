"""The adapters that plugins contribute, and those that are open: one for each channel, opened when it is first asked.

Which models there are is `models.py`'s business, which of their channels is asked `attempts.py`'s.
"""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from tavern_host.common.redaction import redacted
from tavern_host.context import HookResult, PluginContext
from tavern_host.contracts.errors import PluginFailure, TavernError, describe, error_of
from tavern_llm.api.llm import LlmAdapterInfo
from tavern_llm.failures import secrets_of
from tavern_llm.models import Channel, check_channel, misconfigured

HOOK = "tavern_register_llm_adapters"


@dataclass
class OpenAdapter:
    """An open adapter of a channel; closed once it is out of date and nobody uses it. `target` has the methods of
    `LlmAdapter` and maybe those of `LlmFurtherAdapter`."""

    channel: Channel
    info: LlmAdapterInfo
    provider: HookResult[Any]
    revision: int
    target: Any
    users: int = 0
    retired: bool = False

    @property
    def plugin(self) -> str:
        """Whose adapter it is."""
        return self.provider.plugin

    def unexpected(self, value: object, kind: type) -> PluginFailure:
        """Return the error for an answer of another type."""
        found, wanted = type(value).__name__, kind.__name__
        text = f"the adapter {self.channel.adapter!r} of {self.plugin} returned {found}, expected {wanted}"
        return PluginFailure(text, plugin=self.plugin)

    def method(self, name: str) -> Any:
        """Return a method that not every adapter has. Raises `PluginFailure`."""
        method = getattr(self.target, name, None)
        if method is None:
            text = f"the adapter {self.channel.adapter!r} of {self.plugin} cannot do {name}"
            raise PluginFailure(text, plugin=self.plugin, missing=name)
        return method


class Adapters:
    """The adapters of all plugins."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision: int | None = None
        self._infos: dict[str, LlmAdapterInfo] = {}
        self._providers: dict[str, HookResult[Any]] = {}
        self._open: dict[tuple[str, int], OpenAdapter] = {}

    async def infos(self) -> Mapping[str, LlmAdapterInfo]:
        """Return the adapters by name."""
        hooks = self._context.hooks
        revision = hooks.revision
        if revision == self._revision:
            return self._infos
        offered = [(info, one) for one in await hooks.collect(HOOK) for info in one.value]
        owners = dict[str, str]()
        used = [(info, one) for info, one in offered if hooks.claim(owners, "LLM adapter", info.name, one.plugin)]
        self._revision, self._infos = revision, {info.name: info for info, _ in used}
        self._providers = {info.name: contribution for info, contribution in used}
        return self._infos

    @asynccontextmanager
    async def use(self, channel: Channel) -> AsyncIterator[OpenAdapter]:
        """Give the open adapter of a channel for the length of one request.

        What it raises inside becomes an error that names it and holds no key. Raises `Misconfigured`, `PluginFailure`.
        """
        await self.infos()
        adapter = await self._opened(channel)
        adapter.users += 1
        try:
            with adapter.provider.in_use(), self._attributed(channel, adapter.plugin):
                yield adapter
        finally:
            adapter.users -= 1
            if adapter.retired and not adapter.users:
                await self._close(adapter)

    async def close(self) -> None:
        """Close every open adapter."""
        adapters, self._open = list(self._open.values()), {}
        for adapter in adapters:
            await self._close(adapter)

    async def _opened(self, channel: Channel) -> OpenAdapter:
        info = check_channel(channel, self._infos)
        provider, key = self._providers[channel.adapter], (channel.model, channel.number)
        known = self._open.get(key)
        if known is not None and self._is_current(known, channel, info, provider.plugin):
            return known
        with self._attributed(channel, provider.plugin):
            try:
                target = provider.open(info.handler, dict(channel.options))
            except TavernError as error:
                raise misconfigured(channel, error.message) from None
        assert self._revision is not None
        self._open[key] = opened = OpenAdapter(channel, info, provider, self._revision, target)
        if known is not None:
            known.retired = True
            if not known.users:
                await self._close(known)
        return opened

    def _is_current(self, known: OpenAdapter, channel: Channel, info: LlmAdapterInfo, plugin: str) -> bool:
        """Whether an open adapter still is what is asked for. Another plugin's may have been replaced whenever plugins
        changed; our own goes with the service."""
        same = (known.channel, known.info, known.plugin) == (channel, info, plugin)
        return same and (plugin == self._context.plugin or known.revision == self._revision)

    async def _close(self, adapter: OpenAdapter) -> None:
        try:
            await adapter.target.close()
        except Exception as error:
            self._log(error, adapter.channel, adapter.plugin)

    @contextmanager
    def _attributed(self, channel: Channel, plugin: str) -> Iterator[None]:
        try:
            yield
        except TavernError as error:
            text = redacted(error.message, secrets_of(channel.options))
            if text == error.message:
                raise
            self._log(error, channel, plugin)
            raise error_of(error.info.model_copy(update={"message": text})) from None
        except Exception as error:
            text = self._log(error, channel, plugin)
            raise PluginFailure(f"the adapter {channel.adapter!r} of {plugin} failed: {text}", plugin=plugin) from None

    def _log(self, error: Exception, channel: Channel, plugin: str) -> str:
        """Log where an adapter failed and return what it said. The traceback is written without the
        exception's own text, which may quote a key."""
        said = error.message if isinstance(error, TavernError) else describe(error)
        text = redacted(said, secrets_of(channel.options))
        frames = "".join(traceback.format_tb(error.__traceback__))
        self._context.log.error("the adapter %r of %s failed: %s\n%s", channel.adapter, plugin, text, frames)
        return text
