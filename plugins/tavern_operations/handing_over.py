"""Hands a command to the server of its project, and gets its output from there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Any, Protocol
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import ErrorInfo, ServiceUnavailable, error_of

if TYPE_CHECKING:
    from aiohttp import StreamReader

_SILENCE = 60.0
"""Seconds without a sign of life after which a server counts as gone."""


class Server(Protocol):
    """The server of a project: its process, its address, and the operator's token for it."""

    @property
    def process(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def token(self) -> str: ...


async def handed_over(
    server: Server, project: str, name: str, arguments: Mapping[str, Any]
) -> AsyncIterator[CommandOutput]:
    """Yield what a command says that a server carries out. Cancelling cancels it there.

    Raises the command's `TavernError`, and `ServiceUnavailable` where the server is gone before the command has ended.
    """
    from aiohttp import ClientError, ClientSession, ClientTimeout

    where = f"the server at {server.address} (process {server.process})"
    yield CommandOutput(kind="progress", text=f"Run by {where}; --here runs it here.")
    url = f"{server.address}/api/projects/{project}/commands/{quote(name)}"
    headers = {"Authorization": f"Bearer {server.token}"}
    try:
        async with (
            ClientSession(headers=headers, timeout=ClientTimeout(total=None, sock_read=_SILENCE)) as session,
            session.post(url, json=arguments, ssl=False) as answer,  # on this machine,
        ):
            if answer.status != 200:
                problem = await answer.json(content_type=None)
                raise error_of(ErrorInfo(code=problem["code"], message=problem["detail"]))
            async for kind, data in _events(answer.content):
                if kind == "error":
                    raise error_of(ErrorInfo.model_validate(data))
                if kind == "end":
                    return
                yield CommandOutput.model_validate(data)
    except (ClientError, TimeoutError):
        pass
    raise ServiceUnavailable(f"{where} has stopped; `tavern runs list` shows what became of its runs")


async def answer_of(server: Server, path: str) -> Any:
    """Return the JSON that a server answers below `/api/`. Raises its `TavernError`, and `ServiceUnavailable` where it
    is gone."""
    asked = Request(f"{server.address}/api/{path}", headers={"Authorization": f"Bearer {server.token}"})
    trusting = SSLContext(PROTOCOL_TLS_CLIENT)  # it is on this machine; the system's certificates are not read
    trusting.check_hostname, trusting.verify_mode = False, CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trusting))
    try:
        return json.loads(await asyncio.to_thread(lambda: opener.open(asked, timeout=_SILENCE).read()))
    except HTTPError as error:
        with suppress(ValueError, KeyError, TypeError):  # it says it in another form
            problem = json.loads(error.read())
            raise error_of(ErrorInfo(code=problem["code"], message=problem["detail"])) from None
        raise ServiceUnavailable(
            f"the server at {server.address} answered with {error.code}; --here looks here"
        ) from None
    except ValueError:
        raise ServiceUnavailable(f"what is at {server.address} is no server of ours; --here looks here") from None
    except OSError:
        raise ServiceUnavailable(f"the server at {server.address} (process {server.process}) has stopped") from None


async def _events(stream: StreamReader) -> AsyncIterator[tuple[str, Any]]:
    """Yield the name and the data of each server-sent event."""
    text = b""
    async for chunk in stream.iter_any():
        *events, text = (text + chunk).split(b"\n\n")
        for event in events:
            kind, _, data = event.partition(b"\ndata: ")
            if data:
                yield kind.removeprefix(b"event: ").decode(), json.loads(data)
