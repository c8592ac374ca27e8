"""Checks who sends a webhook: by a secret at the end of the address, by Standard Webhooks 1.0.0, or as GitHub signs.

Secrets are kept encrypted with a key that is a secret setting, so that hosts which share a database can share it too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from pydantic import JsonValue

from tavern_host import PluginContext, clock
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.documents import read_json
from tavern_host.contracts.errors import InvalidInput, Misconfigured, NotFound, Unauthorized
from tavern_host.contracts.settings import SETTINGS, SettingsChange

WINDOW = 300.0
"""Seconds by which the time of a signed message may differ from this clock's."""

_KEY = "webhookKey"


def new_secret(auth: str) -> str:
    """Return a fresh secret in the form that senders of this kind take."""
    if auth == "standard":
        return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_urlsafe(32)


def checked_secret(auth: str, secret: str) -> str:
    """Return a secret that somebody gives. Raises `InvalidInput`."""
    if (
        not 24 <= len(secret) <= 500
        or not secret.isascii()
        or not secret.isprintable()
        or "/" in secret * (auth == "path")
    ):
        raise InvalidInput("a secret has 24 to 500 printable characters of ASCII, in an address none of them a slash")
    if auth == "standard":
        _standard_key(secret)
    return secret


async def sealed(context: PluginContext, secret: str) -> str:
    """Return a secret encrypted. Makes the key where there is none."""
    from cryptography.fernet import Fernet

    if not context.settings.get(_KEY, ""):
        change = SettingsChange(
            plugin=context.plugin, values={f"extensions.{context.plugin}.{_KEY}": secrets.token_hex(32)}
        )
        await context.services.get(SETTINGS).save(change, call=system_call(context.project.id))
    return Fernet(_fernet_key(context)).encrypt(secret.encode()).decode()


def opened(context: PluginContext, token: str) -> str:
    """Return a secret that was encrypted. Raises `Misconfigured` where the key is another."""
    from cryptography.fernet import Fernet, InvalidToken

    try:
        return Fernet(_fernet_key(context)).decrypt(token.encode()).decode()
    except InvalidToken:
        message = f"the secret was kept with another extensions.{context.plugin}.{_KEY}: give the webhook a new one"
        raise Misconfigured(message) from None


def _fernet_key(context: PluginContext) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(str(context.settings.get(_KEY, "")).encode()).digest())


def verified(auth: str, secret: str, given: str, headers: Mapping[str, str], body: bytes) -> str | None:
    """Return the key that lets a message that may be trusted fire once; None where each is to. `given` is the end of
    the address. Every comparison takes the same time wherever the difference is.

    Raises `NotFound` for a wrong end of an address, as for one that is none; `Unauthorized`.
    """
    if auth == "path":
        if not hmac.compare_digest(given.encode(), secret.encode()):
            raise NotFound("there is no webhook at this address")
        key = headers.get("idempotency-key", "")
        return _digest(key.encode()) if key else None
    if given:
        raise NotFound("there is no webhook at this address")
    if auth == "github":
        signed = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(headers.get("x-hub-signature-256", "").encode(), signed.encode()):
            raise Unauthorized("X-Hub-Signature-256 is missing or wrong")
        return _digest(body)  # all that is signed: the delivery's id could be another in a replay
    return _standard(secret, headers, body)


def _standard(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    key = _standard_key(secret)
    wanted = hmac.new(key, b".".join((message_id.encode(), timestamp.encode(), body)), hashlib.sha256).digest()
    right = [
        hmac.compare_digest(wanted, base64.b64decode(value))
        for version, _, value in (one.partition(",") for one in headers.get("webhook-signature", "").split(" ")[:20])
        if version == "v1" and _is_base64(value)
    ]
    if not message_id or not any(right):
        raise Unauthorized("webhook-signature is missing or wrong")
    if not timestamp.isdigit() or len(timestamp) > 12 or abs(int(timestamp) - clock.seconds()) > WINDOW:
        raise Unauthorized(f"webhook-timestamp is more than {WINDOW:g} seconds from this clock's time")
    return _digest(message_id.encode())


def _standard_key(secret: str) -> bytes:
    encoded = secret.removeprefix("whsec_")
    if encoded == secret:
        return secret.encode()
    if not _is_base64(encoded):
        raise InvalidInput("what follows whsec_ in a secret is base64")
    return base64.b64decode(encoded)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def payload_of(body: bytes, headers: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return a webhook's payload: its body as a JSON object, a form's fields, or another JSON value or text as `body`.
    Raises `InvalidInput` for JSON that is none."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        found: dict[str, JsonValue] = dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=1000))
        is_github = found.keys() == {"payload"}  # GitHub's form has the JSON as one field
        return payload_of(str(found["payload"]).encode(), {"content-type": "application/json"}) if is_github else found
    if body and (kind == "application/json" or kind.endswith("+json")):
        value = read_json(body, "the body")
        return value if isinstance(value, dict) else {"body": value}
    return {"body": body.decode("utf-8", "replace")} if body else {}
