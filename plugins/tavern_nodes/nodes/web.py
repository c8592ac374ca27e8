"""The node that asks another server over HTTP: the hosts that the operator has listed and no others, with credentials
that the operator has set up and that workflows only name."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from pydantic import Field

from tavern_host import Blob, Config, InvalidInput, NodeContext, PluginContext, Slot, node
from tavern_host.contracts.documents import read_model, to_thread_if_large
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model, without_surrogates
from tavern_nodes.documents import read_json
from tavern_nodes.values import as_text, to_json

if TYPE_CHECKING:
    import aiohttp

    from tavern_scripts.api.outgoing import Outgoing

HOSTS, CREDENTIALS = "allowedHosts", "credentials"
_HOSTS = f"the operator's setting extensions.tavern-nodes.{HOSTS}"
_CREDENTIALS = f"the operator's setting extensions.tavern-nodes.{CREDENTIALS}"
MAX_ANSWER = 16 * 2**20
"""How many bytes an answer has at most, unpacked."""
_LARGE = 100_000
_REDIRECTS = 5
_LATER = (408, 425, 429)
_SAID = 300
"""Characters of an answer that an error shows."""
_KEPT = frozenset({"accept", "accept-language", "user-agent", "content-type"})
"""The headers that go along to another origin."""
_HOSTS_OWN = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive"}
    | {"proxy-authorization", "proxy-connection"}
)
"""The headers that say where a request goes and where it ends, which is not for a workflow to say."""
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""What Python takes for charsets and no server sends: they raise errors of their own, or take hours."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_JSON = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json")
_TEXT = re.compile(r"text/.*|application/(?:xml|javascript|x-www-form-urlencoded|yaml|.*\+xml)")


class Credential(Model):
    """What the operator sets up for workflows to name: the `hosts` that it is for, the `header` that carries it, and
    the variable of the host's environment (`key_env`) that holds it, written behind a `prefix`."""

    hosts: list[str] = Field(min_length=1)
    key_env: str = Field(alias="key_env", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    header: str = Field(default="Authorization", pattern=f"^{_HEADER.pattern}$")
    prefix: str = "Bearer "


class HttpAnswer(TypedDict):
    """The outputs of `HttpRequest`."""

    body: Annotated[Any, Slot("What came back: JSON as its value, text as text, anything else as a file (a Blob).")]
    status: Annotated[int, Slot("The status, such as 200.")]
    headers: Annotated[dict[str, Any], Slot("The headers that came back, with names in small letters.")]


@node(type="HttpRequest", category="Web", display_name="HTTP request", cached=False, bypass="mute")
async def http_request(
    context: NodeContext,
    url: Annotated[str, Slot("The address, such as https://api.example.com/v1/items.", display_name="URL")],
    query: Annotated[dict[str, Any] | None, Slot("What is put behind the ? of the address, by name.")] = None,
    headers: Annotated[dict[str, Any] | None, Slot("Headers that are sent, by name.")] = None,
    body: Annotated[Any, Slot("What is sent: an object or list as JSON, a text or file as it is.")] = None,
    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"], Config("What is asked for.")] = "GET",
    credential: Annotated[str, Config("The name of a credential that the operator has set up.")] = "",
    seconds: Annotated[float, Config("How many seconds it may take.", min=0.1, max=600)] = 30.0,
    failure: Annotated[
        Literal["error", "output"],
        Config("Whether an answer without success fails the node, or is given as others are."),
    ] = "error",
) -> HttpAnswer:
    """Ask another server over HTTP, of the hosts that the operator has listed."""
    plugin = context.plugin
    outgoing, sent = _outgoing(plugin, plugin.settings.get(HOSTS), _HOSTS), _sent_headers(headers or {})
    address, target = outgoing.check(url)
    if query:
        address = address.update_query({key: as_text(value, "HttpRequest: query") for key, value in query.items()})
    if credential:
        sent |= _authorisation(plugin, credential, str(address))  # headers of a client have no case: it takes the last
    data = await _data(context, body, sent)
    try:
        async with (
            asyncio.timeout(seconds),
            outgoing.request(method, str(address), headers=sent, data=data, redirects=_REDIRECTS, kept=_KEPT) as answer,
        ):
            content = await _content(answer, str(target))
    except TimeoutError:
        raise ServiceUnavailable(f"HttpRequest: {target} did not answer within {seconds:g} s") from None
    if answer.status >= 300 and answer.status != 304 and failure == "error":
        raise _refused(answer, content, str(target))
    given = await _value(context, answer, content)
    return {"body": given, "status": answer.status, "headers": {k.lower(): v for k, v in answer.headers.items()}}


def _outgoing(plugin: PluginContext, hosts: Any, setting: str) -> Outgoing:
    from tavern_scripts.api.allowlist import AllowList
    from tavern_scripts.api.outgoing import Outgoing

    try:
        allowed = AllowList(hosts if isinstance(hosts, list) else [])
    except InvalidInput as error:
        raise Misconfigured(f"HttpRequest: {setting} cannot be used: {error.message}") from None
    return Outgoing(plugin.http, allowed, setting=setting, what="requests")


def _sent_headers(headers: dict[str, Any]) -> dict[str, str]:
    sent = {"User-Agent": "tavern-host"}
    for name, value in headers.items():
        text = as_text(value, f"HttpRequest: the header {name!r:.80}")
        if not _HEADER.fullmatch(name) or not text.isprintable():
            raise InvalidInput(f"HttpRequest: {name!r:.80} is no header, or its value has line breaks")
        if name.lower() in _HOSTS_OWN:
            raise InvalidInput(f"HttpRequest: the header {name} is set by the host: leave it out")
        sent[name] = text
    return sent


def _authorisation(plugin: PluginContext, name: str, address: str) -> dict[str, str]:
    """Return the header of a credential. Raises `PermissionDenied` where it is not for this address."""
    known = plugin.settings.get(CREDENTIALS) or {}
    if name not in known:
        raise InvalidInput(
            f"HttpRequest: there is no credential {name!r:.80} in {_CREDENTIALS}{did_you_mean(name, known)}"
        )
    about = read_model(Credential, known[name], f"{_CREDENTIALS}: {name}")
    _outgoing(plugin, about.hosts, f"{_CREDENTIALS}, for {name!r},").check(address, secret=True)
    if not (value := os.environ.get(about.key_env)):
        raise Misconfigured(
            f"HttpRequest: the variable {about.key_env} of the credential {name!r} is not set for the host"
        )
    if not (shown := f"{about.prefix}{value}").isprintable():
        raise Misconfigured(f"HttpRequest: the variable {about.key_env} of the credential {name!r} has line breaks")
    return {about.header: shown}


async def _data(context: NodeContext, body: Any, sent: dict[str, str]) -> bytes | None:
    """Return the bytes that are sent, and add their media type to the headers where there is none."""
    if body is None:
        return None
    if (blob := Blob.of(body)) is not None:
        kind, data = blob.media_type, await context.blobs.read(blob)
    elif isinstance(body, bytes):
        kind, data = "application/octet-stream", body
    elif isinstance(body, str):
        kind, data = "text/plain; charset=utf-8", without_surrogates(body).encode()
    else:
        kind, data = "application/json", without_surrogates(to_json(body, "HttpRequest: the body")).encode()
    if not any(name.lower() == "content-type" for name in sent):
        sent["Content-Type"] = kind
    return data


async def _content(answer: aiohttp.ClientResponse, target: str) -> bytes:
    import aiohttp

    content = bytearray()
    try:
        async for part in answer.content.iter_any():
            content += part
            if len(content) > MAX_ANSWER:
                raise InvalidInput(f"HttpRequest: {target} sent more than {MAX_ANSWER >> 20} MiB")
    except aiohttp.ClientError as error:
        raise ServiceUnavailable(f"HttpRequest: the answer of {target} broke off: {error}") from None
    return bytes(content)


async def _value(context: NodeContext, answer: aiohttp.ClientResponse, content: bytes) -> Any:
    """Return the content of an answer, as its media type says."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not content:
        return None
    if not _JSON.fullmatch(kind) and not _TEXT.fullmatch(kind) and kind:
        try:
            return await context.blobs.put(content, kind)
        except InvalidInput:  # it is no media type
            return await context.blobs.put(content)
    text = await to_thread_if_large(len(content) > _LARGE, _decoded, content, answer.charset or "utf-8")
    if _JSON.fullmatch(kind):
        return await to_thread_if_large(len(content) > _LARGE, read_json, text, "HttpRequest: the answer")
    return text


def _decoded(content: bytes, charset: str) -> str:
    with suppress(LookupError):  # a name that is none
        if codecs.lookup(charset).name not in _NO_CHARSETS:
            return content.decode(charset, "replace")
    return content.decode("utf-8", "replace")


def _refused(answer: aiohttp.ClientResponse, content: bytes, target: str) -> TavernError:
    said = " ".join(content[: 4 * _SAID].decode("utf-8", "replace").split())[:_SAID]
    message = f"HttpRequest: {target} answered {answer.status}{f': {said}' if said else ''}"
    details: dict[str, Any] = {"status": answer.status}
    if answer.status < 500 and answer.status not in _LATER:
        return TavernError(message, **details)
    if re.fullmatch(r"\d{1,5}", pause := answer.headers.get("Retry-After", "")):
        details["retry_after"] = float(pause)
    return ServiceUnavailable(message, **details)
