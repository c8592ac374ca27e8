"""The host's own pages, for browsers that have no session: how to get in, and which projects somebody may choose from.
They have no script, and one style sheet, which other pages before the studio share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from aiohttp import web

from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.languages import CATALOGUE, say
from tavern_host.host import Host
from tavern_host.server.routes import route
from tavern_host.server.served import SERVED

_PAGE, _STYLE = (Path(__file__).with_name(name) for name in ("pages.html", "pages.css"))
_FORM = """<form>
{kept}<label for="token">{label}</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button>{enter}</button>
</form>
"""
_ENTER = (
    "Paste the token of this server, or open the address that <code>tavern serve</code> printed. "
    "<code>tavern token</code> shows both again."
)
_WRONG = "That is not the token of this server, or not any more."
_LOG_IN = 'If the operator has made you a user, <a href="BASE/login">log in</a>.'


def signed_out(request: web.Request, base: str) -> web.Response:
    """Return the page that lets a browser in which brings a token, and leads to where it was to go."""
    rest = [(name, value) for name, value in request.query.items() if name != "token"]
    kept = "".join(f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">\n' for name, value in rest)
    wrong = f'<p role="alert">{say(_WRONG)}</p>\n' if "token" in request.query else ""
    body = f"<p>{say(_ENTER)}</p>\n{wrong}{_FORM.format(kept=kept, label=say('Token'), enter=say('Enter'))}"
    if _has_accounts(request.app[SERVED].default):
        body += f"<p>{say(_LOG_IN).replace('BASE', base)}</p>"
    return _page("You are signed out", body, base, 401)


def projects(hosts: Iterable[Host], base: str) -> web.Response:
    """Return the page that leads to projects."""
    rows = [f'<li><a href="?projectId={host.project.id}">{escape(host.project.name)}</a></li>' for host in hosts]
    body = f"<ul>{''.join(rows)}</ul>" if rows else f"<p>{say('You are a member of none: ask the operator.')}</p>"
    return _page("Your projects", body, base)


def _page(title: str, body: str, base: str, status: int = 200) -> web.Response:
    text = _PAGE.read_text(encoding="utf-8").format(
        language=CATALOGUE.get().language, title=say(title), base=base, body=body
    )
    return web.Response(status=status, text=text, content_type="text/html")


def _has_accounts(host: Host) -> bool:
    try:
        host.services.get(ACCOUNTS)
    except TavernError:
        return False
    return True


async def _style(request: web.Request) -> web.Response:
    """The style sheet of the pages before the studio."""
    return web.Response(body=_STYLE.read_bytes(), content_type="text/css")


ROUTES = (route("GET", "/pages.css", _style, content_type="text/css", access="public"),)
