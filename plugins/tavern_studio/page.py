"""The page at `/`: what the browser needs to load the studio, or why the studio is not there.

The studio itself is a bundle that is built from `frontend/` when the package is installed; see `hatch_build.py`. All
names that come from projects are escaped; scripts and styles are files of their own. The one script in the page is the
import map, by which front ends of plugins share the studio's Vue; the policy of the page names its hash.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_studio.dev import addresses

WEB = Path(__file__).parent / "web"
"""Where the bundle lies: `studio.js`, `studio.css` and what they load."""
PROBLEM = WEB / "problem.txt"
"""Why there is no bundle, in words, where building it failed."""

_NOT_BUILT = """The page is not built. Run <code>pip install -e .</code> in the folder of \
tavern-host, which builds it. The server works without it: see \
<a href="{base}/api/docs">the HTTP interface</a> and <code>tavern --help</code>."""


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the page of the studio, or one that says why it was not built."""
    if (WEB / "studio.js").is_file():
        vue = f"{request.base}/projects/{context.project.id}/plugins/tavern-studio/vue.js"
        return _page(
            request, context, '<div id="app"></div>', "studio", dev=await addresses(context, request.base, vue)
        )
    reason = PROBLEM.read_text(encoding="utf-8", errors="replace").strip() if PROBLEM.is_file() else ""
    missing = _NOT_BUILT.format(base=escape(urlsplit(request.base).path))
    return _page(request, context, f"<main><h1>tavern-host</h1><p>{missing}</p><pre>{escape(reason)}</pre></main>")


async def documentation(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Lead to the documentation in the page."""
    return HttpResponse(status=302, headers={"Location": f"{urlsplit(request.base).path}/#/docs"})


async def api(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the page that reads `/api/openapi.json` and sends requests."""
    section = (
        '<header><h1>tavern-host</h1></header><main><section id="routes"><h2>Routes</h2><p id="state">reading …</p>'
        '<input id="search" type="search" hidden placeholder="Search routes" aria-label="Search routes">'
        '<div id="route-list"></div></section></main>'
    )
    return _page(request, context, section, "api", style="plain")


def _page(
    request: HttpRequest,
    context: PluginContext,
    body: str,
    script: str = "",
    style: str = "",
    dev: Mapping[str, str] | None = None,
) -> HttpResponse:
    """Return a page of a project; the script reads from the root element where the server is, and which project.

    `dev` are the addresses of sources that development servers serve, by plugin.
    """
    project, base = context.project, escape(urlsplit(request.base).path)
    files = f"{base}/projects/{project.id}/plugins/tavern-studio"
    name = escape(project.name)
    shared = json.dumps({"imports": {"vue": f"{files}/vue.js"}}) if script == "studio" else ""
    written = f" data-dev='{escape(json.dumps(dev))}'" if dev else ""
    load = f'<script type="module" src="{files}/{script}.js"></script>' if script else ""
    look = f'<link rel="stylesheet" href="{files}/{style or script}.css">' if style or script else ""
    page = f"""<!doctype html>
<html lang="en" data-base="{base}" data-project="{project.id}" data-name="{name}"{written}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} — tavern-host</title>
<link rel="icon" href="{files}/icon.svg">
{f'<script type="importmap">{shared}</script>' if shared else ""}
{look}
{load}
</head>
<body>
{body}
</body>
</html>
"""
    headers = {"Content-Security-Policy": policy(shared, (dev or {}).values())}
    return HttpResponse(body=page.encode(), content_type="text/html", headers=headers)


def policy(inline: str, dev: Iterable[str] = ()) -> str:
    """Return the content security policy of a page with at most one script in it: everything else comes from this
    server, but for pictures and fonts that are written into a style sheet or a script.

    Of development servers everything comes that their pages have; Vite writes styles into the page.
    """
    origins = sorted({f"http://{urlsplit(address).netloc}" for address in dev})
    also = "".join(f" {origin}" for origin in origins)
    style = [f"style-src 'self' 'unsafe-inline'{also}"] if origins else []
    sockets = [f"connect-src 'self'{also}{also.replace('http:', 'ws:')}"] if origins else []
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self'{f' {hash_source(inline)}' if inline else ''}{also}",
            *style,
            *sockets,
            f"img-src 'self' data: blob:{also}",
            f"font-src 'self' data:{also}",
            "object-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ]
    )


def hash_source(script: str) -> str:
    """Return the name of an inline script in a page's content security policy: its SHA-256."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
