"""The HTTP routes of logins, users and tokens; each hands over to the service and shapes its answer."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.accounts import (
    ACCOUNTS,
    Accounts,
    ChangedMembers,
    Identity,
    Kind,
    Settled,
    SettledWork,
    WorkFilter,
    settled_text,
)
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import InvalidInput, LimitReached, TavernError, Unauthorized
from tavern_host.contracts.host_api import Done
from tavern_host.contracts.wire import Model

_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Log in — tavern-host</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">
<link rel="stylesheet" href="{base}/pages.css">
"""
# Without a referrer, a browser sends `null` as the origin of a form.
_PAGE = """<main>
<h1>Log in</h1>
<p role="alert">{problem}</p>
<form method="post" action="{base}/api/login">
<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" autofocus required>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button>Log in</button>
</form>
{elsewhere}
</main>
</html>
"""
_ELSEWHERE = '<p><a href="{base}/login/openid">Log in with {title}</a></p>'
# The browser leaves this page by itself: redirected from the provider's it would not send the cookie, which is for
# requests from this site.
_ENTERED = """<meta http-equiv="refresh" content="0;url={base}/">
<main><p>You are logged in: <a href="{base}/">continue</a>.</p></main>
</html>
"""
_STATUS = {"not_found": 404, "unauthorized": 401, "forbidden": 403, "conflict": 409, "limit_reached": 429}
_STATUS |= {"invalid_input": 400}


class Credentials(Model):
    """The body of `POST /api/login`."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=2000)


class PasswordBody(Model):
    """A new password."""

    password: str


class PasswordChange(PasswordBody):
    """A new password, and the one that holds."""

    current: str


class RoleBody(Model):
    """A new role."""

    role: str


class NewUser(PasswordBody):
    """The body of `POST /api/users`."""

    name: str
    role: str = "creator"


class TokenBody(Model):
    """The body of `POST /api/tokens`."""

    name: str
    days: int = 90


class OpenBody(Model):
    """The body of `PUT /api/members`."""

    open: bool


class MemberBody(Model):
    """The body of `PUT /api/members/{name}`; without a role the user's own holds."""

    role: str = ""


class StopBody(Model):
    """The body of `POST /api/work/stop`."""

    kind: Kind
    name: str


class DoneAndSettled(Done, Settled):
    """What was asked for was done, and ended work in flight."""


async def log_in(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Begin a session, and give its token to the browser as a cookie; a page's form is led to the first page."""
    is_form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    is_form = is_form and not request.body.lstrip().startswith(b"{")  # as curl calls all that it sends
    if is_form:
        try:
            fields = dict(parse_qsl(request.body.decode(), keep_blank_values=True, errors="strict"))
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the form is not UTF-8 text (byte {error.start})") from None
        credentials = read_model(Credentials, fields, "the form")
    else:
        credentials = request.read(Credentials)
    service = _service(context)
    try:
        new = await service.log_in(credentials.name, credentials.password, client=request.client, call=request.call)
    except (Unauthorized, LimitReached) as error:
        if is_form:
            return await _page(request, context, error)
        raise
    left = int((new.session.expires_at - new.session.created_at).total_seconds())
    if is_form:
        there = {"Location": f"{_base(request)}/"}
        return HttpResponse(status=303, body=b"", headers=there, session=new.token, session_seconds=left)
    identity = await _identity(service, new.session.user, new.session.id)
    return HttpResponse(data=identity.to_json(), session=new.token, session_seconds=left)


async def login_page(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a page in which a user can log in."""
    return await _page(request, context)


async def openid(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Send the browser to the provider of OpenID Connect."""
    try:
        begun = await _service(context).begin_openid(_callback(request), call=request.call)
    except TavernError as error:
        return await _failed(request, context, error)
    return HttpResponse(status=303, body=b"", headers={"Location": begun.address}, cookies={"openid": begun.secret})


async def openid_callback(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Begin a session for who comes back from the provider."""
    secret, where = request.cookies.get("openid", ""), _callback(request)
    try:
        new = await _service(context).finish_openid(
            where, secret, request.query, client=request.client, call=request.call
        )
    except TavernError as error:
        return await _failed(request, context, error)
    left = int((new.session.expires_at - new.session.created_at).total_seconds())
    body, cookies = (_HEAD + _ENTERED).format(base=_base(request)).encode(), {"openid": ""}
    return HttpResponse(body=body, content_type="text/html", session=new.token, session_seconds=left, cookies=cookies)


async def log_out(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """End the session with which this was asked."""
    user = _user(request)
    await _service(context).end_sessions(user, request.session, call=request.call)
    return _done("You are logged out.", session="")


async def log_out_everywhere(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """End all sessions of who asks."""
    done = await _service(context).end_sessions(_user(request), call=request.call)
    return _done(f"Sessions that ended: {done.ended}.", session="")


async def me(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with who asks; the operator may do everything."""
    service, name = _service(context), request.call.principal.id
    if not request.session:
        everything = (await service.roles())["admin"]
        return HttpResponse(data=Identity(user=name, role="operator", permissions=everything).to_json())
    return HttpResponse(data=(await _identity(service, name, request.session)).to_json())


async def change_password(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Change the password of who asks."""
    body = request.read(PasswordChange)
    name = _user(request)
    settled = await _service(context).set_password(name, body.password, current=body.current, call=request.call)
    return _done("The password is changed; log in with it.", settled)


async def tokens(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the sessions and tokens of who asks."""
    return HttpResponse(data=[one.to_json() for one in await _service(context).sessions(_user(request))])


async def make_token(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make an API token for who asks."""
    body = request.read(TokenBody)
    made = await _service(context).make_token(_user(request), body.name, days=body.days, call=request.call)
    return HttpResponse(status=201, data=made.to_json())


async def end_token(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Revoke a session or token of who asks."""
    done = await _service(context).end_sessions(_user(request), request.parameters["id"], call=request.call)
    return _done("It is revoked.", done.settled)


async def list_users(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with all users."""
    return HttpResponse(data=[user.to_json() for user in await _service(context).list_users()])


async def add_user(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Add a user."""
    body = request.read(NewUser)
    user = await _service(context).add_user(body.name, body.password, role=body.role, call=request.call)
    return HttpResponse(status=201, data=user.to_json())


async def remove_user(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Remove a user."""
    settled = await _service(context).remove_user(request.parameters["name"], call=request.call)
    return _done("The user is removed.", settled)


async def set_role(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give a user another role."""
    role = request.read(RoleBody).role
    user = await _service(context).set_role(request.parameters["name"], role, call=request.call)
    return HttpResponse(data=user.to_json())


async def set_password(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give a user another password."""
    password = request.read(PasswordBody).password
    settled = await _service(context).set_password(request.parameters["name"], password, call=request.call)
    return _done("The password is changed.", settled)


async def end_sessions(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """End all sessions of a user."""
    done = await _service(context).end_sessions(request.parameters["name"], call=request.call)
    return _done(f"Sessions that ended: {done.ended}.")


async def members(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with who may enter this project."""
    return HttpResponse(data=(await _service(context).members()).to_json())


async def set_open(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Open or close this project."""
    settled = await _service(context).set_open(request.read(OpenBody).open, call=request.call)
    found = await _service(context).members()
    return HttpResponse(data=ChangedMembers(**dict(found), settled=settled).to_json())


async def set_member(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Let a user enter this project."""
    role = request.read(MemberBody).role
    member = await _service(context).set_member(request.parameters["name"], role, call=request.call)
    return HttpResponse(data=member.to_json())


async def remove_member(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Let a user no longer enter this project."""
    settled = await _service(context).remove_member(request.parameters["name"], call=request.call)
    return _done("The user is no member any more.", settled)


async def stop(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Stop all work of a user, an agent, a tool or a plugin."""
    which = WorkFilter(**dict(request.read(StopBody)))
    settled = await _service(context).stop_work(which, call=request.call)
    return _done(f"What the {which.kind} {which.name} did is stopped.", settled)


async def _failed(request: HttpRequest, context: PluginContext, error: TavernError) -> HttpResponse:
    """Return the page in which users log in, with what went wrong; raises the error for who is no browser."""
    if "text/html" not in request.headers.get("accept", ""):
        raise error
    return await _page(request, context, error)


async def _page(request: HttpRequest, context: PluginContext, error: TavernError | None = None) -> HttpResponse:
    """Return the page in which users log in, with what went wrong before."""
    title, base = await _service(context).openid(), escape(_base(request))
    elsewhere = _ELSEWHERE.format(base=base, title=escape(title)) if title else ""
    problem, status = (error.message, _STATUS.get(error.info.code, 503)) if error is not None else ("", 200)
    body = (_HEAD + _PAGE).format(base=base, problem=escape(problem), elsewhere=elsewhere).encode()
    return HttpResponse(status=status, body=body, content_type="text/html")


def _service(context: PluginContext) -> Accounts:
    return context.services.get(ACCOUNTS)


def _user(request: HttpRequest) -> str:
    """Return the name of who asks. Raises `InvalidInput` for the operator, who is no user."""
    if not request.session:
        raise InvalidInput("the operator's token is of no user: it ends with the server; log in as a user first")
    return request.call.principal.id


async def _identity(service: Accounts, user: str, session: str) -> Identity:
    """Return a user's role and permissions, without the projects that are closed to them."""
    identity = await service.identity(user)
    projects = {project: permissions for project, permissions in identity.projects.items() if permissions}
    return identity.model_copy(update={"projects": projects, "session": session})


def _callback(request: HttpRequest) -> str:
    return f"{request.base}/login/openid/callback"


def _base(request: HttpRequest) -> str:
    return urlsplit(request.base).path


def _done(message: str, settled: list[SettledWork] | None = None, *, session: str | None = None) -> HttpResponse:
    done = Done(message=message)
    if settled is not None:
        done = DoneAndSettled(message=f"{message} {settled_text(settled)}".rstrip(), settled=settled)
    return HttpResponse(data=done.to_json(), session=session)
