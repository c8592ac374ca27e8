"""Logins at a provider of OpenID Connect: the authorization code flow with PKCE, state and nonce.

Whom a provider knows is no user yet: the operator's setting says who is, by name or by a rule. The ends of the flow are
bound to one browser by a secret that it keeps; the server keeps nothing of a login that has begun.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from base64 import b64encode, urlsafe_b64encode
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from pydantic import Field

from tavern_host import PluginContext, clock
from tavern_host.common.proxies import failed
from tavern_host.contracts.accounts import OpenIdLogin
from tavern_host.contracts.documents import read_json, read_model
from tavern_host.contracts.errors import InvalidInput, Misconfigured, NotFound, ServiceUnavailable, Unauthorized
from tavern_host.contracts.wire import Model

SETTING = "extensions.tavern-accounts.openid"
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures with a key of the provider's; not those with a secret that both know, and not none."""
_SECONDS = 10.0
_MOST = 1 << 18
"""How long one answer of the provider may take, and how many bytes it may have."""
_LEEWAY = 60
"""Seconds by which the clocks may differ."""


class Rule(Model):
    """Lets in everybody of whom a claim is `value`, in which `*` is any text, or has it in its list, with a role."""

    claim: str
    value: str
    role: str = "creator"


class Provider(Model):
    """The setting: a provider, and who of those that it knows is a user here.

    `users` are names of users by what the provider calls them: `sub`, or an e-mail address that it has verified.
    """

    issuer: str
    client_id: str
    name: str = ""
    scopes: str = "openid profile email"
    users: dict[str, str] = Field(default_factory=dict)
    rules: list[Rule] = Field(default_factory=list)

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def user_of(self, claims: dict[str, Any]) -> str | None:
        """Return the user whom the operator mapped somebody to."""
        email, by_email = _email(claims), {key.lower(): user for key, user in self.users.items() if "@" in key}
        return self.users.get(claims["sub"]) or (by_email.get(email) if email is not None else None)

    def role_of(self, claims: dict[str, Any]) -> str | None:
        """Return the role of the first rule that lets somebody in."""
        for rule in self.rules:
            claim = _email(claims) if rule.claim == "email" else claims.get(rule.claim)
            values = claim if isinstance(claim, list) else [claim]
            if any(isinstance(value, str) and fnmatchcase(value, rule.value) for value in values):
                return rule.role
        return None

    def name_of(self, claims: dict[str, Any]) -> str:
        """Return the name of a new user: the e-mail address, if it is verified, else what somebody calls themselves."""
        name = _email(claims) or claims.get("preferred_username")
        text = name if isinstance(name, str) else claims["sub"]
        return re.sub(r"[^a-z0-9._@-]", "-", text.lower()).lstrip("._@-")[:64]


def _email(claims: dict[str, Any]) -> str | None:
    email = claims.get("email")
    return email.lower() if isinstance(email, str) and claims.get("email_verified") is True else None


class _Endpoints(Model, extra="ignore", alias_generator=None):
    """What is needed of a provider's metadata (OpenID Connect Discovery 1.0 §3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = Field(default_factory=lambda: ["client_secret_basic"])


class OpenId:
    """Speaks with the provider."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    def provider(self) -> Provider | None:
        """Return the provider that the operator has set up, if there is one. Raises `Misconfigured`."""
        setting = self._context.settings.get("openid", {})
        if not setting:
            return None
        try:
            provider = read_model(Provider, setting, f"the setting {SETTING}")
        except InvalidInput as error:
            raise Misconfigured(error.message) from None
        _check(provider.issuer)
        return provider

    async def begin(self, back: str) -> OpenIdLogin:
        """Return where to send a browser, and what it has to keep. Raises as `Accounts.begin_openid`."""
        provider = self.needed()
        endpoints = await self._endpoints(provider)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        query = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": back,
            "scope": provider.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        there = endpoints.authorization_endpoint
        address = f"{there}{'&' if '?' in there else '?'}{urlencode(query)}"
        return OpenIdLogin(address=address, secret=f"{state}.{nonce}.{verifier}")

    async def finish(self, provider: Provider, back: str, secret: str, answer: dict[str, str]) -> dict[str, Any]:
        """Return the claims of the provider about the person who came back. Raises as `Accounts.finish_openid`."""
        state, nonce, verifier = [*secret.split("."), "", ""][:3]
        if not verifier or not hmac.compare_digest(state.encode(), answer.get("state", "").encode(errors="replace")):
            raise InvalidInput("this login was not begun in this browser, or more than ten minutes ago: begin it again")
        if answer.get("iss", provider.issuer) != provider.issuer or "code" not in answer:
            why = answer.get("error_description") or answer.get("error") or "its answer is none to this login"
            raise Unauthorized(f"{provider.title} has not logged you in: {why[:200]}")
        endpoints = await self._endpoints(provider)
        form = {"grant_type": "authorization_code", "code": answer["code"], "redirect_uri": back}
        form |= {"code_verifier": verifier, "client_id": provider.client_id}
        headers, own = {}, str(self._context.settings.get("openidSecret") or "")
        if own and "client_secret_basic" in endpoints.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(provider.client_id)}:{quote_plus(own)}"  # RFC 6749 §2.3.1
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        elif own:
            form["client_secret"] = own
        token = await self._asked("POST", endpoints.token_endpoint, data=form, headers=headers)
        keys = await self._asked("GET", endpoints.jwks_uri)
        claims = await asyncio.to_thread(_verified, token.get("id_token"), keys, provider, nonce)
        if endpoints.userinfo_endpoint is not None and isinstance(token.get("access_token"), str):
            bearer = {"Authorization": f"Bearer {token['access_token']}"}
            more = await self._asked("GET", endpoints.userinfo_endpoint, headers=bearer)
            if more.get("sub") != claims["sub"]:  # OpenID Connect Core 1.0 §5.3.2
                raise Unauthorized(f"{provider.title} speaks of two people")
            claims = {**more, **claims}
        return claims

    def needed(self) -> Provider:
        """Return the provider. Raises `NotFound` where there is none, and `Misconfigured`."""
        provider = self.provider()
        if provider is None:
            raise NotFound("there is no provider of OpenID Connect: log in with a name and a password")
        try:
            import joserfc  # noqa: F401
        except ImportError:
            message = "OpenID Connect needs a library: pip install 'tavern-host[oidc]'"
            raise Misconfigured(message) from None
        return provider

    async def _endpoints(self, provider: Provider) -> _Endpoints:
        address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._asked("GET", address)
        try:
            endpoints = read_model(_Endpoints, found, address)
        except InvalidInput as error:
            raise Misconfigured(error.message) from None
        if endpoints.issuer != provider.issuer:
            raise Misconfigured(f"{address} is of another issuer, {endpoints.issuer!r}")
        return endpoints

    async def _asked(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object that the provider answers with. Raises `Unauthorized` where it refuses something,
        `Misconfigured` and `ServiceUnavailable`."""
        import aiohttp

        _check(address)
        try:
            session, body = self._context.http.session(), b""
            async with (
                asyncio.timeout(_SECONDS),
                session.request(method, address, allow_redirects=False, **options) as answer,
            ):
                async for part in answer.content.iter_chunked(1 << 14):
                    body += part
                    if len(body) > _MOST:
                        raise ServiceUnavailable(f"{address} answered with more than {_MOST} bytes")
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            why = failed(self._context.http.proxy(address), error)
            raise ServiceUnavailable(f"{address} cannot be reached{why}") from None
        if answer.status >= 500 or answer.status // 100 == 3:
            raise ServiceUnavailable(f"{address} answered {answer.status}")
        try:
            value = read_json(body, address)
        except InvalidInput:
            value = None
        if not isinstance(value, dict):
            raise ServiceUnavailable(f"{address} answered {answer.status}, and with something else than an object")
        if answer.status >= 400:
            raise Unauthorized(f"{address} answered {answer.status}: {str(value.get('error'))[:200]}")
        return value


def _verified(token: Any, keys: dict[str, Any], provider: Provider, nonce: str) -> dict[str, Any]:
    """Return the claims of an ID token (OpenID Connect Core 1.0 §3.1.3.7). Raises `Unauthorized`."""
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        claims = jwt.decode(str(token), KeySet.import_key_set(keys), algorithms=_ALGORITHMS).claims  # type: ignore[arg-type]
        jwt.JWTClaimsRegistry(
            now=int(clock.seconds()),
            leeway=_LEEWAY,
            iss={"essential": True, "value": provider.issuer},
            aud={"essential": True, "value": provider.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise Unauthorized(f"{provider.title} sent no valid ID token: {error}") from None
    if claims.get("nonce") != nonce:
        raise Unauthorized(f"{provider.title} sent the ID token of another login")
    others = isinstance(claims["aud"], list) and set(claims["aud"]) != {provider.client_id}
    if claims.get("azp", provider.client_id) != provider.client_id or (others and "azp" not in claims):
        raise Unauthorized(f"{provider.title} sent an ID token that is for somebody else")
    return claims


def _check(address: str) -> None:
    """Raise `Misconfigured` for an address of a provider that is not encrypted on its way."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme != "http" or not (host == "localhost" or _is_loopback(host)):
        raise Misconfigured(f"{address!r}, of the setting {SETTING} or its provider, must be an https address")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
