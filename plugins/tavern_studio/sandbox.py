"""The document in which a sandboxed panel runs: the same for every plugin, and for nobody in particular.

It gets the plugin's code from the page around it, as a message. Its own policy makes it a document of no origin: it has
no cookies and no storage, sees no other document, is seen by none, and loads nothing from anywhere.
"""

from __future__ import annotations

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_studio.page import WEB, hash_source

_CLIENT = "sandbox-client.js"


async def frame(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the document of a sandboxed panel."""
    client = (WEB / _CLIENT).read_text(encoding="utf-8")
    document = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>panel</title>
<body>
<script>{client}</script>
</html>
"""
    headers = {"Content-Security-Policy": _policy(client), "X-DNS-Prefetch-Control": "off"}
    return HttpResponse(body=document.encode(), content_type="text/html", headers=headers)


def _policy(client: str) -> str:
    return "; ".join(
        [
            "sandbox allow-scripts",
            "default-src 'none'",
            f"script-src {hash_source(client)} blob:",
            "worker-src 'none'",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "font-src data:",
            "media-src data: blob:",
            "webrtc 'block'",
            "frame-ancestors 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
