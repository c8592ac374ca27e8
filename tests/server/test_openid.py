"""Logging in at a provider of OpenID Connect that is somebody else's program."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import warnings
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from helpers.repetition import Failures
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from werkzeug.test import Client

from tavern_accounts.limits import PER_CLIENT
from tavern_accounts.openid import Provider, _verified
from tavern_host import AUDIT, Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import Unauthorized
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib")

NOBODY = {"Authorization": None, "Accept": "text/html"}
KEY = "extensions.tavern-accounts.openid"
USERS = {
    "1-ann": {"email": "Ann@inn.example", "email_verified": True},
    "2-eve": {"email": "ann@inn.example", "email_verified": False, "preferred_username": "ann"},
    "3-bob": {"preferred_username": "Bob Ross", "groups": ["guests", "staff"]},
    "4-bob": {"preferred_username": "bob-ross", "groups": ["staff"]},
    "5-dan": {"email": "dan@inn.example", "email_verified": True, "groups": "staffers"},
    "6-operator": {"preferred_username": "operator", "groups": ["staff"]},
}


class Id:
    """The provider, what it was asked for tokens, and what it says of a user where it is wrong."""

    def __init__(self, issuer: str, forms: list[dict[str, str]], lies: dict[str, Any]) -> None:
        self.issuer, self.forms, self.lies = issuer, forms, lies

    async def logged_in(self, address: str, subject: str) -> str:
        """Log somebody in at the provider; return the address that the browser is sent back to."""
        async with ClientSession() as browser:
            claims = USERS.get(subject, {})
            assert (await browser.put(f"{self.issuer}/users/{subject}", json=claims)).status == 204
            answer = await browser.post(address, data={"sub": subject}, allow_redirects=False)
            assert answer.status == 302, await answer.text()
            return answer.headers["Location"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[Id]:
    """Serve the provider on a port of this machine, in the loop of the tests."""
    with warnings.catch_warnings(record=True):  # it uses parts of its libraries that are deprecated
        import oidc_provider_mock

    inner, forms, lies = oidc_provider_mock.app(), [], {}

    def recording(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] == "/oauth2/token":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            forms.append(dict(parse_qsl(body.decode())) | {"authorization": environ.get("HTTP_AUTHORIZATION", "")})
            environ["wsgi.input"] = io.BytesIO(body)
        if environ["PATH_INFO"] == "/userinfo" and lies:
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(lies).encode()]
        return inner(environ, start)

    asking = Client(recording, use_cookies=False)

    async def answer(request: web.Request) -> web.Response:
        about = {"method": request.method, "headers": [*request.headers.items()], "data": await request.read()}
        response = asking.open(str(request.rel_url), base_url=f"http://{request.host}", **about)
        return web.Response(status=response.status_code, headers=response.headers, body=response.data)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield Id(f"http://127.0.0.1:{server.port}", forms, lies)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inn(provider: Id, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Serve a project whose operator has set the provider up, to ann too."""
    place = tmp_path_factory.mktemp("openid")
    folders = Folders(place / "config", place / "state", place / "data")
    rule = {"claim": "groups", "value": "staff", "role": "viewer"}
    openid = {"issuer": provider.issuer, "clientId": "inn", "name": "Inn <ID>"}
    openid |= {"users": {"ann@inn.example": "ann", "7-gone": "gone", "": "ann"}, "rules": [rule]}
    settings = {KEY: openid, "extensions.tavern-accounts.openidSecret": "p&ss"}
    async with Host(place / "inn", folders=folders, settings=settings) as host, served(host) as opened:
        await host.services.get(ACCOUNTS).add_user("ann", "good evening", role="admin")
        yield opened


def cookies(answer: Any) -> dict[str, str]:
    return {name: cookie.value for name, cookie in answer.cookies.items()}


async def begun(inn: HttpClient) -> tuple[str, dict[str, str]]:
    """Begin a login in a browser; return where it is sent, and the cookies that it has."""
    answer = await inn.get("/login/openid", headers=NOBODY)
    assert answer.status == 303, await answer.text()
    return answer.headers["Location"], cookies(answer)


async def came_back(inn: HttpClient, address: str, kept: Mapping[str, str]) -> tuple[int, str, dict[str, str]]:
    """Come back from the provider, as a browser; return the status, the page and the cookies."""
    header = "; ".join(f"{name}={value}" for name, value in kept.items())
    path = address.removeprefix(f"http://127.0.0.1:{inn.port}")
    answer = await inn.get(path, headers={**NOBODY, "Cookie": header or None})
    return answer.status, await answer.text(), cookies(answer)


async def log_in(inn: HttpClient, provider: Id, subject: str) -> tuple[int, str, dict[str, str]]:
    there, kept = await begun(inn)
    return await came_back(inn, await provider.logged_in(there, subject), kept)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_mapped_user_logs_in_at_the_provider(inn: HttpClient, provider: Id) -> None:
    login = await inn.get("/login", headers=NOBODY)
    assert '<a href="/login/openid">Log in with Inn &lt;ID&gt;</a>' in await login.text()
    there, kept = await begun(inn)
    asked = {key: values[0] for key, values in parse_qs(urlsplit(there).query).items()}
    assert there.startswith(f"{provider.issuer}/")
    back = f"http://127.0.0.1:{inn.port}/login/openid/callback"
    assert (asked["redirect_uri"], asked["response_type"], asked["client_id"]) == (back, "code", "inn")

    status, page, new = await came_back(inn, await provider.logged_in(there, "1-ann"), kept)
    assert status == 200
    assert 'content="0;url=/"' in page
    name = f"tavern_{inn.port}"
    assert (new[f"{name}_tavern-accounts_openid"], set(new)) == ("", {name, f"{name}_tavern-accounts_openid"})
    me = await inn.get("/api/me", headers={"Authorization": None, "Cookie": f"{name}={new[name]}"})
    assert (await me.json())["user"] == "ann"

    form = provider.forms[-1]
    challenge = _base64(hashlib.sha256(form["code_verifier"].encode()).digest())
    assert (asked["code_challenge"], asked["code_challenge_method"]) == (challenge, "S256")
    assert form["authorization"] == "Basic aW5uOnAlMjZzcw=="  # inn:p%26ss
    entries = await inn.host.services.get(AUDIT).tail(20)
    assert ("user:ann", "account.logged_in", provider.issuer) in {
        (entry.actor, entry.action, entry.details.get("issuer")) for entry in entries
    }
    text = str([entry.to_json() for entry in entries])
    assert not [secret for secret in (asked["state"], form["code"], form["code_verifier"], "p&ss") if secret in text]


@pytest.mark.asyncio(loop_scope="module")
async def test_only_those_whom_the_operator_means_enter(inn: HttpClient, provider: Id) -> None:
    accounts = inn.host.services.get(ACCOUNTS)
    with Failures() as failures:
        for subject, status, said in (
            ("2-eve", 403, "you are no user here"),
            ("3-bob", 200, "You are logged in"),
            ("3-bob", 200, "You are logged in"),
            ("4-bob", 409, "another user &#x27;bob-ross&#x27;"),
            ("5-dan", 403, "you are no user here"),
            ("6-operator", 400, "cannot be the name of a user"),
            ("7-gone", 403, "not there any more"),
            ("8-new", 403, "you are no user here"),
        ):
            with failures.row(subject):
                found, page, new = await log_in(inn, provider, subject)
                assert (found, said in page) == (status, True), page
                assert bool(new.get(f"tavern_{inn.port}")) is (status == 200)
        provider.lies |= {"sub": "1-ann", **USERS["1-ann"]}
        with failures.row("two people"):
            found, page, _ = await log_in(inn, provider, "8-new")
            assert (found, "speaks of two people" in page) == (401, True), page
        provider.lies.clear()
    users = {user.name: user.role for user in await accounts.list_users()}
    assert users == {"ann": "admin", "bob-ross": "viewer"}
    entries = await inn.host.services.get(AUDIT).tail(50)
    assert "2-eve" in {entry.subject for entry in entries if entry.action == "account.login_refused"}
    # Who has no password logs in with none.
    for password in ("", "a password of nobody", "good evening"):
        body = {"name": "bob-ross", "password": password}
        assert (await inn.post("/api/login", headers={"Authorization": None}, json=body)).status == 401


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_is_for_one_browser_once(inn: HttpClient, provider: Id) -> None:
    there, kept = await begun(inn)
    back = await provider.logged_in(there, "1-ann")
    _, kept_by_another = await begun(inn)
    (name,) = kept
    state, nonce, verifier = kept[name].split(".")
    code = dict(parse_qsl(urlsplit(back).query))["code"]
    path = urlsplit(back).path
    with Failures() as failures:
        for what, address, has, status in (
            ("no cookie", back, {}, 400),
            ("another's cookie", back, kept_by_another, 400),
            ("an empty cookie", back, {name: ""}, 400),
            ("an empty state", f"{path}?{urlencode({'code': code, 'state': ''})}", {name: ".."}, 400),
            ("no state", f"{path}?code={code}", kept, 400),
            ("another plugin's cookie", back, {name.replace("accounts", "demo"): kept[name]}, 400),
            ("no code", f"{path}?state={state}", kept, 401),
            ("a refusal", f"{path}?state={state}&error=access_denied", kept, 401),
            ("markup", f"{path}?state={state}&error=%3Cscript%3E%0d%0aX: y", kept, 401),
            ("another issuer", f"{back}&iss=https://evil.example", kept, 401),
            ("a code of nobody", f"{path}?state={state}&code=guess", kept, 401),
        ):
            with failures.row(what):
                found, page, new = await came_back(inn, address, has)
                assert (found, new.get(f"tavern_{inn.port}")) == (status, None), page
                assert "<script>" not in page
        with failures.row("another nonce"):
            found, page, new = await came_back(inn, back, {name: f"{state}.x{nonce}.{verifier}"})
            assert (found, new.get(f"tavern_{inn.port}"), "of another login" in page) == (401, None, True), page
        with failures.row("used already"):
            assert (await came_back(inn, back, kept))[0] == 401


def _part(value: Any) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def test_an_id_token_is_believed_for_this_login_alone() -> None:
    own, other = RSAKey.generate_key(2048, {"kid": "1"}), RSAKey.generate_key(2048, {"kid": "1"})
    keys: Any = KeySet([own]).as_dict(private=False)
    known = Provider(issuer="https://id.example", client_id="inn")
    good = {"iss": "https://id.example", "aud": "inn", "sub": "1", "exp": 2_000_000_000, "iat": 1, "nonce": "n"}
    with Failures() as failures:
        for what, change, key, is_right in (
            ("as it is", {}, own, True),
            ("of several, for this one", {"aud": ["inn", "barn"], "azp": "inn"}, own, True),
            ("another key", {}, other, False),
            ("another issuer", {"iss": "https://id.example/"}, own, False),
            ("for another", {"aud": "barn"}, own, False),
            ("of several, for nobody", {"aud": ["inn", "barn"]}, own, False),
            ("of several, for another", {"aud": ["inn", "barn"], "azp": "barn"}, own, False),
            ("expired", {"exp": 1_600_000_000}, own, False),
            ("never expires", {"exp": None}, own, False),
            ("of nobody", {"sub": None}, own, False),
            ("a number", {"sub": 5}, own, False),
            ("of tomorrow", {"iat": 1_999_999_999}, own, False),
            ("another nonce", {"nonce": "m"}, own, False),
            ("no nonce", {"nonce": None}, own, False),
        ):
            claims = {name: value for name, value in {**good, **change}.items() if value is not None}
            token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, key)
            with failures.row(what):
                if is_right:
                    assert _verified(token, keys, known, "n")["sub"] == "1"
                else:
                    with pytest.raises(Unauthorized):
                        _verified(token, keys, known, "n")
        unsigned = f"{_part({'alg': 'none'})}.{_part(good)}"
        signed = f"{_part({'alg': 'HS256', 'kid': '1'})}.{_part(good)}"
        mac = hmac.digest(own.as_pem(private=False), signed.encode(), "sha256")  # as if the public key were a password
        for token in (None, "", "x", f"{unsigned}.", f"{signed}.{_base64(mac)}"):
            with failures.row(f"{token}"[:40]), pytest.raises(Unauthorized):
                _verified(token, keys, known, "n")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_setting_or_many_wrong_answers_let_nobody_in(provider: Id, tmp_path: Path) -> None:
    good = {"issuer": provider.issuer, "clientId": "inn"}
    async with Host(tmp_path / "inn") as host, served(host) as inn:

        async def page() -> tuple[int, str]:
            answer = await inn.get("/login/openid", headers=NOBODY)
            return answer.status, await answer.text()

        assert (await page())[0] == 404
        program = await inn.get("/login/openid", headers={"Authorization": None})
        assert (program.status, (await program.json())["code"]) == (404, "not_found")
        with Failures() as failures:
            for change, said in (
                ({"issuer": "http://id.example"}, "must be an https address"),
                ({"issuer": "file:///etc/passwd"}, "must be an https address"),
                ({"issuer": "http://127.0.0.1.evil.example"}, "must be an https address"),
                ({"issuer": f"{provider.issuer}/"}, "is of another issuer"),
                ({"issuer": "http://127.0.0.1:1"}, "cannot be reached"),
                ({"issuer": f"{provider.issuer}/nothing"}, ""),
                ({"clientId": 5}, "clientId: Input should be a valid string"),
                ({"rules": [{"claim": "groups"}]}, "rules[0].value: Field required"),
                ({"user": {}}, "Extra inputs are not permitted"),
            ):
                body = {KEY: {**good, **change}}
                saved = await inn.post("/api/plugins/tavern-accounts/settings", json=body)
                with failures.row(str(change)):
                    assert saved.status == 200, await saved.text()
                    status, text = await page()
                    assert (status, said in text) == (503, True), text
                    assert (await inn.get("/login", headers=NOBODY)).status == 200
        assert (await inn.post("/api/plugins/tavern-accounts/settings", json={KEY: good})).status == 200
        found = [(await came_back(inn, "/login/openid/callback?state=x&code=y", {}))[0] for _ in range(PER_CLIENT + 1)]
        assert found == [400] * PER_CLIENT + [429]
