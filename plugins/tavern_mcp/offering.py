"""Tools of the project as an MCP server's: what is offered, a call from its request to its result, with what it reports
meanwhile and the approval that it may wait for."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from typing import Any

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.storage.confined_fs import confined_folder, open_file
from tavern_mcp.changes import Changes
from tavern_mcp.offers import offer_of
from tavern_mcp.people import Asked, People, form_of, required, response_of
from tavern_tools.api.toolcalls import (
    ContentPart,
    Report,
    ToolCallRequest,
    ToolResult,
    ToolScope,
    ToolTask,
    reporting_to,
)
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter

CallOf = Callable[[Asked], CallContext]
"""Returns the call of the person whose client asks."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")
_MOST_PICTURE, _MOST_LISTENERS = 8 << 20, 200
_LOOK, _EVERY = 20.0, 0.1
_FRESH = 5.0
"""Seconds for which names of tools are remembered; whether one is offered is looked at with each call."""


def make_server(context: PluginContext, call_of: CallOf) -> Server[Any]:
    """Return a server that offers what the setting `offer` names, to the clients of a person."""
    offering = Offering(context, call_of)
    server = _Server(
        "tavern-host",
        version="1",
        title=context.project.name,
        on_list_tools=offering.listed,
        on_call_tool=offering.call,
        on_subscriptions_listen=ListenHandler(offering.changes, max_subscriptions=_MOST_LISTENERS),
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, offering.changes.tell)
    return server


class _Server(Server[Any]):
    """Says to clients of before 2026, too, that they are notified of other tools."""

    def create_initialization_options(self, *_: Any, **more: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), **more)


class Offering:
    """Answers clients, within what is offered."""

    def __init__(self, context: PluginContext, call_of: CallOf) -> None:
        self._context = context
        self._call_of = call_of
        self._tools = context.services.get(TOOL_MANAGER)
        self._people = People(context)
        self._names: dict[str, ToolDefinition] | None = None
        self._named_at = -_FRESH
        self.changes = Changes(context, self._offered)

    async def listed(self, ctx: Asked, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Return the tools that clients may call."""
        found = (await self._offered()).items()
        return types.ListToolsResult(tools=[_tool(name, definition) for name, definition in found])

    async def call(
        self, ctx: Asked, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool, and return what it gave."""
        try:
            definition = (self._names or {}).get(params.name)
            if definition is None or clock.monotonic() - self._named_at > _FRESH:
                definition = (await self._offered()).get(params.name)
            if definition is None:
                raise NotFound(f"there is no tool {params.name!r:.200}")
            scope = ToolScope(allowed=offer_of(self._context), streams=True)
            async with _reporting(ctx) as report:
                with reporting_to(report):
                    call = _ClientCall(self._context, self._people, definition, self._call_of(ctx), report)
                    return await call.made(ctx, params, scope)
        except TavernError as error:
            return _failure(f"{error.code}: {error.message}")

    async def _offered(self) -> dict[str, ToolDefinition]:
        """Return the offered tools by names that clients take. Notifies clients where they have changed."""
        patterns = offer_of(self._context)
        all_of_them = await self._tools.list_tools(ToolFilter(ids=patterns)) if patterns else []
        alike = Counter(_name(one.id) for one in all_of_them)
        found: dict[str, ToolDefinition] = {}
        for one in all_of_them:
            name = _name(one.id)
            if alike[name] > 1 or not one.id.isascii():  # each has a name that never was, or becomes, another's
                name = f"{name[:50]}_{sha256(one.id.encode()).hexdigest()[:8]}"
            if one.unavailable is None:
                found[name] = one
        before, self._names, self._named_at = self._names, found, clock.monotonic()
        if before is not None and before != found:
            await self.changes.publish(ToolsListChanged())
        return found


class _ClientCall:
    """One call of a client, who calls as the agent `mcp` of the operator, or `mcp.USER`; the `person` approves."""

    def __init__(
        self, context: PluginContext, people: People, definition: ToolDefinition, person: CallContext, report: Report
    ) -> None:
        agent = "mcp" if person.principal.id == "operator" else f"mcp.{person.principal.id}"
        self._context = context
        self._tools = context.services.get(TOOL_MANAGER)
        self._people = people
        self._definition = definition
        self._person = person
        self._caller = person.child(principal=Principal(kind="agent", id=agent))
        self._report = report

    async def made(
        self, ctx: Asked, params: types.CallToolRequestParams, scope: ToolScope
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make it, or continue with it where the client brings what the person said."""
        found: ToolResult | types.InputRequiredResult | None
        if params.request_state is not None:
            found = await self._resumed(ctx, params.request_state, response_of(params.input_responses))
        else:
            request = ToolCallRequest(tool_id=self._definition.id, arguments=params.arguments or {})
            found = await self._attended(ctx, self._tools.call(request, scope=scope, call=self._caller))
        if isinstance(found, types.InputRequiredResult):
            return found
        if found.status == "awaiting_approval" and found.task_id is not None:
            if not _can_ask(ctx):
                return _failure(f"{found.content[0].text} The client cannot ask anybody.")
            task = await self._tools.task(found.task_id, call=self._caller)
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return required(task, task.id)
            await self._elicit(ctx, task)
        if found.task_id is not None and found.status != "done":
            found = await self._attended(ctx, self._ended(found.task_id))
        return found if isinstance(found, types.InputRequiredResult) else await self._result(found)

    async def _resumed(self, ctx: Asked, state: str, said: object) -> ToolResult | types.InputRequiredResult:
        tool_id = self._definition.id
        held = await self._people.resume(ctx, tool_id, self._person, state, said)
        if held is not None:
            return held
        task = await self._tools.task(state, call=self._caller)  # of this caller, or there is none
        if task.tool_id != tool_id:
            raise NotFound(f"there is no call {task.id} of {tool_id}")
        try:
            await self._people.decide(task, said, self._person)
        except InvalidInput as error:
            return required(task, task.id, error.message)
        return await self._attended(ctx, self._ended(task.id))

    async def _elicit(self, ctx: Asked, task: ToolTask) -> None:
        """Ask the person about the call itself, once more where an answer does not fit."""
        note: str | None = ""
        while note is not None:
            message, schema = form_of(task, note)
            said = await ctx.session.elicit_form(message, schema, ctx.request_id)
            try:
                await self._people.decide(task, said, self._person)
                note = None
            except InvalidInput as error:
                note = error.message

    async def _attended(self, ctx: Asked, work: Awaitable[ToolResult]) -> ToolResult | types.InputRequiredResult:
        """Return the result of a call; questions for a person meanwhile are put to the one at the client."""
        if not _can_ask(ctx):
            return await work
        return await self._people.attend(ctx, self._definition.id, self._person, work)

    async def _ended(self, task_id: str) -> ToolResult:
        """Return the result of a task. It is cancelled with the request."""
        wait = 1 if self._report is not _nobody else _LOOK
        try:
            while not (task := await self._tools.task(task_id, wait=wait, call=self._caller)).status.is_final:
                self._report(task.progress, task.progress_text)
        except asyncio.CancelledError:
            await asyncio.shield(self._tools.cancel_task(task_id, call=self._caller))
            raise
        if task.result is None:
            raise TavernError(f"the call ended as {task.status}")
        return task.result

    async def _result(self, result: ToolResult) -> types.CallToolResult:
        if result.error is not None:
            return _failure(f"{result.error.type}: {result.error.message}")
        parts, structured = result.content, result.structured
        if [part.type for part in parts] == ["stream"]:
            items = [item async for item in self._items(str(parts[0].uri))]
            structured = "".join(map(str, items)) if all(isinstance(item, str) for item in items) else items
            parts = [ContentPart(type="data", data=structured)]
        content = [
            await asyncio.to_thread(self._picture, part) if part.type == "image" else _block(part) for part in parts
        ]
        is_declared = _object(self._definition.output) is not None and isinstance(structured, dict)
        return types.CallToolResult(content=content, structured_content=structured if is_declared else None)

    async def _items(self, handle: str) -> AsyncIterator[Any]:
        while True:
            found = await self._tools.read_stream(handle, call=self._caller)
            for item in found.items:
                self._report(None, item if isinstance(item, str) else _json(item))
                yield item
            if found.error is not None:
                raise TavernError(f"the stream broke off: {found.error}")
            if found.finished:
                return

    def _picture(self, part: ContentPart) -> types.ContentBlock:
        """Return a picture that a call gave, or where it is if it cannot be sent. Blocking."""
        *folders, name = str(part.uri).split("/")
        with (
            contextlib.suppress(OSError),
            confined_folder(self._context.project.folder("files"), folders) as folder,
            os.fdopen(open_file(folder, name), "rb") as file,
        ):
            if len(data := file.read(_MOST_PICTURE + 1)) <= _MOST_PICTURE:
                mime_type = part.mime_type or "image/png"
                return types.ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=mime_type)
        return _text(f"[the file {part.uri} of the project]")


@contextlib.asynccontextmanager
async def _reporting(ctx: Asked) -> AsyncIterator[Report]:
    """Give what takes reports, and send the latest to the client, ten times a second at most, if it asked for that."""
    if (ctx.meta or {}).get("progress_token") is None:
        yield _nobody
        return
    news = asyncio.Event()
    latest: tuple[float | None, str | None] = (None, None)
    sent = 0.0

    def report(progress: float | None, text: str | None) -> None:
        nonlocal latest
        latest = (latest[0] if progress is None else progress, latest[1] if text is None else text)
        news.set()

    async def send() -> None:
        nonlocal sent
        progress, text = latest
        news.clear()
        sent = max(sent + 1e-6, progress or 0.0)  # it has to grow
        await ctx.session.report_progress(sent, None if progress is None else 1.0, text)

    async def pump() -> None:
        while await news.wait():
            await send()
            await asyncio.sleep(_EVERY)

    pumping = asyncio.create_task(pump(), name="tell an MCP client how far a call is")
    try:
        yield report
        if news.is_set():
            await send()
    finally:
        pumping.cancel()
        await asyncio.wait([pumping])


def _nobody(progress: float | None, text: str | None) -> None:
    """Report to nobody."""


def _name(tool_id: str) -> str:
    return _UNUSUAL.sub("_", tool_id)[:60]


def _can_ask(ctx: Asked) -> bool:
    has = ctx.session.client_capabilities
    return has is not None and has.elicitation is not None


def _tool(name: str, definition: ToolDefinition) -> types.Tool:
    return types.Tool(
        name=name,
        title=definition.display_name or definition.id,
        description=definition.description,
        input_schema={"type": "object", **definition.parameters},
        output_schema=_object(definition.output),
        annotations=types.ToolAnnotations(read_only_hint=definition.read_only, idempotent_hint=definition.idempotent),
    )


def _object(schema: Any) -> dict[str, Any] | None:
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else None


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(text)], is_error=True)


def _block(part: ContentPart) -> types.ContentBlock:
    """Return a part of a result for a client, of a file where it is."""
    if part.type == "file":
        return _text(f"[the file {part.uri} of the project]")
    text = part.text if part.text is not None else part.data
    return _text(text if isinstance(text, str) else _json(text))


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
