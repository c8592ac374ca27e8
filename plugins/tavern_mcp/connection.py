"""The connection to one server: made when it is first needed, renewed after it was lost, and followed while it
lasts. What the server offers is noted in the record of what was approved."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from tavern_host import clock
from tavern_host.common.proxies import through
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import (
    Forbidden,
    InvalidInput,
    LimitReached,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
    describe,
)
from tavern_mcp.answers import Answers
from tavern_mcp.approvals import Approvals, Approved, content_of
from tavern_mcp.declarations import Declared
from tavern_mcp.resources import MOST_TOOLS, all_of, keep_resources
from tavern_mcp.transport import Run, Streams, http_streams, paced, program_streams, run_plain
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, PackagedProgram, SandboxOutput
from tavern_tools.api.toolcalls import Report, current_report

T = TypeVar("T")

_MOST_CALLS = 64
_BACKOFF, _LONGEST, _NEWS_EVERY = 1.0, 60.0, 1.0
_FOLLOWED = (types.ToolListChangedNotification, types.PromptListChangedNotification)
_RESOURCES = (types.ResourceListChangedNotification, types.ResourceUpdatedNotification)


class Connection:
    """One server, which costs itself alone: what it does wrong fails its own calls."""

    def __init__(
        self, context: PluginContext, declared: Declared, approvals: Approvals, on_change: Callable[[], None]
    ) -> None:
        self.declared = declared
        self.problem = ""
        self._proxy: str | None = None
        self._context = context
        self._approvals = approvals
        self._on_change = on_change
        self._answers = Answers(context, declared)
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._are_resources_new = False
        self._odd = self._told = ""
        self._failures = 0
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None

    async def close(self) -> None:
        """End the connection, and the server with it where it is a program."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def client(self) -> Client:
        """Return the session, connected if necessary. Raises `ServiceUnavailable`, `Forbidden`."""
        if self._client is not None:
            return self._client
        if self._task is not None and self._ended.is_set():
            await asyncio.wait([self._task])
        if self._task is None or self._task.done():
            wait = self._not_before - clock.monotonic()
            if wait > 0:
                raise self._unavailable(f"{self.problem or 'it was lost'}; it is tried again in {wait:.0f} s")
            self._ready = asyncio.Event()
            self._task = self._context.tasks.spawn(self._stay(), name=f"MCP server {self.declared.name}")
        await self._ready.wait()
        if self._client is None:
            raise self._unavailable(self.problem)
        return self._client

    async def asked(self, ask: Callable[[Client, Any], Awaitable[T]], call: CallContext) -> T:
        """Return a server's answer, within its time limit. Raises `ServiceUnavailable`, `PluginFailure` for what it
        refuses or does against the protocol, and `LimitReached` where too much is asked of it already."""
        calls = self._answers.calls
        if len(calls) >= _MOST_CALLS:
            raise LimitReached(f"the MCP server {self.declared.name} is asked {_MOST_CALLS} things at once already")
        client = await self.client()
        calls.append(call)
        name = self.declared.name
        try:
            return await ask(client, _progress(current_report()))
        except TavernError:
            raise
        except Exception as error:
            if self._client is client and isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                self._lost(f"the connection was lost: {error.error.message[:200]}")  # if there is no better reason
            if self._client is not client:
                raise self._unavailable(self.problem or "the connection was lost") from None
            if isinstance(error, MCPError):
                raise PluginFailure(f"the MCP server {name} refused: {error.error.message[:2000]}") from None
            raise PluginFailure(f"the MCP server {name} answered wrongly: {describe(error)[:2000]}") from None
        finally:
            calls.remove(call)

    # --- its life ---------------------------------------------------------------------------------

    async def _stay(self) -> None:
        """Connect, and follow what the server tells, until it is lost."""
        self._ended, self._news = asyncio.Event(), asyncio.Event()
        self._answers.ended = self._ended
        self.problem = ""
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    client = await self._connected(stack)
                    self._client, self._failures, self._told = client, 0, ""
                    self._ready.set()
                    await self._follow(client)
                except Exception as error:
                    self._lost(_reason(error, self._proxy))
        except Exception as error:  # on the way out
            self._lost(_reason(error, self._proxy))
        finally:
            self._client = None
            if self.problem and not self._context.is_stopping():
                self._failures += 1
                wait = 0.0 if self._failures == 1 else min(_LONGEST, _BACKOFF * 2 ** (self._failures - 2))
                self._not_before = clock.monotonic() + wait
                if self.problem != self._told:
                    self._context.log.warning("the MCP server %s: %s", self.declared.name, self.problem)
                    if self._context.serving:
                        self._on_change()  # its tools say why they cannot be called
                self._told = self.problem
            self._ready.set()

    async def _connected(self, stack: contextlib.AsyncExitStack) -> Client:
        """Return a session, for as long as the stack is open. Raises whatever goes wrong."""
        seconds, self._odd = self.declared.server.start_seconds, ""
        await self._check_approved()
        package = self.declared.server.package  # which is fetched in its own time
        scripts = self._context.services.get(SCRIPT_EXECUTION)
        packaged = None if package is None else await scripts.install(package)
        try:
            async with asyncio.timeout(seconds):
                client = await stack.enter_async_context(self._opened(await self._transport(packaged)))
                await self._note(client)
                return client
        except TimeoutError:
            raise ServiceUnavailable(f"it did not answer within {seconds:g} s{self._odd}") from None

    def _opened(self, transport: AbstractAsyncContextManager[Streams]) -> Client:
        answers, server = self._answers, self.declared.server
        return Client(
            paced(transport, self._lost),
            sampling_callback=answers.sample if server.sampling != "refuse" else None,
            elicitation_callback=answers.elicit if server.elicitation != "refuse" else None,
            message_handler=self._heard,
            client_info=types.Implementation(name="tavern-host", version="1"),
            cache=None,
        )

    async def _check_approved(self) -> None:
        """Note a server of the operator as approved. Raises `Forbidden` for one of a project that is not."""
        declared = self.declared
        approved = self._approvals.of(declared.name)
        digest = await asyncio.to_thread(declared.digest)
        if digest != approved.digest:
            if declared.is_to_be_approved:
                raise Forbidden(f"it is not approved as it is now: tavern mcp approve {declared.name}")
            self._approvals.change(declared.name, lambda _: Approved(digest=digest))

    async def _transport(self, packaged: PackagedProgram | None) -> AbstractAsyncContextManager[Streams]:
        declared = self.declared
        if (url := declared.server.url) is not None:
            headers, self._proxy = declared.values(declared.server.headers), self._context.http.proxy(url)
            return http_streams(url, headers, declared.server.seconds, self._proxy, self._lost)
        return program_streams(await asyncio.to_thread(self._run, packaged), self._lost)

    def _run(self, packaged: PackagedProgram | None) -> Run:
        request = self.declared.program(packaged)
        if not self.declared.server.sandbox:
            return lambda stdin: run_plain(request, stdin)
        scripts = self._context.services.get(SCRIPT_EXECUTION)

        def run(stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
            return scripts.converse(request, stdin)

        return run

    def _lost(self, reason: str) -> None:
        if not self.problem:
            self.problem = reason
        self._client = None
        self._ended.set()
        self._news.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            self._odd = f"; {message}"
        if isinstance(message, _RESOURCES):
            self._are_resources_new = True
        if isinstance(message, (*_FOLLOWED, *_RESOURCES)):
            self._news.set()

    async def _follow(self, client: Client) -> None:
        """Look again at what there is whenever the server says that it changed, once a second at most."""
        listening: asyncio.Task[None] | None = None
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            listening = asyncio.create_task(self._listen(client))
        try:
            await keep_resources(self._context, self.declared, client)
            while await self._news.wait() and not self._ended.is_set():
                self._news.clear()
                async with asyncio.timeout(self.declared.server.start_seconds):
                    await self._note(client)
                if self._are_resources_new:
                    self._are_resources_new = False
                    await keep_resources(self._context, self.declared, client)
                await asyncio.sleep(_NEWS_EVERY)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        with contextlib.suppress(Exception):  # a server need not tell of changes
            while True:
                with contextlib.suppress(SubscriptionLost):
                    async with client.listen(
                        tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                    ) as events:
                        async for event in events:
                            self._are_resources_new |= "resources" in type(event).__name__.lower()
                            self._news.set()
                await asyncio.sleep(_NEWS_EVERY)
                self._are_resources_new = True  # nobody knows what was not told meanwhile
                self._news.set()

    async def _note(self, client: Client) -> None:
        """Record what the server offers: what is new counts as approved, what was approved stays as it was."""
        has = client.server_capabilities
        tools = await all_of(client.list_tools, "tools") if has.tools else []
        prompts = await all_of(client.list_prompts, "prompts") if has.prompts else []
        seen = {tool.name: content_of(tool.model_dump(by_alias=True, mode="json")) for tool in tools}
        said = [{"name": one.name, "needs": [a.name for a in one.arguments or [] if a.required]} for one in prompts]
        besides = [name for name in ("resources", "prompts") if getattr(has, name)]
        before = self._approvals.of(self.declared.name)

        if len({**seen, **before.tools}) > 3 * MOST_TOOLS:
            raise InvalidInput(f"it has had {3 * MOST_TOOLS:,} tools: tavern mcp approve forgets those that are gone")

        def noted(approved: Approved) -> Approved:
            known = {**seen, **approved.tools}
            now = {"tools": known, "seen": seen, "has": besides, "prompts": said, "slow": False}
            return approved.model_copy(update=now)

        after = self._approvals.change(self.declared.name, noted)
        if after == before:
            return
        for name in after.seen:
            if changes := after.changes(name):
                hint = f"look at it with `tavern mcp show {self.declared.name}`, then `tavern mcp approve` it"
                message = f"the tool {name} of the MCP server {self.declared.name} is not called: {changes} changed"
                self._context.hooks.report(self._context.plugin, message, hint=hint)
        self._on_change()

    def _unavailable(self, reason: str) -> TavernError:
        return ServiceUnavailable(f"the MCP server {self.declared.name} cannot be used: {reason}", retryable=True)


def _progress(report: Report | None) -> Any:
    if report is None:
        return None

    async def told(progress: float, total: float | None, message: str | None) -> None:
        report(progress / total if total else None, message if message or total else f"{progress:g}")

    return told


def _reason(error: BaseException, proxy: str | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return error.error.message[:2000]
    if isinstance(error, ValidationError):
        return f"it does not keep to the protocol: {error.error_count()} fields are wrong in its {error.title}"
    return error.message if isinstance(error, TavernError) else f"{describe(error)[:2000]}{through(proxy, error)}"
