"""Under which keys the aiohttp application holds what its handlers need."""

from __future__ import annotations

from aiohttp import web

from tavern_host.host import Host

HOST: web.AppKey[Host] = web.AppKey("host", Host)
