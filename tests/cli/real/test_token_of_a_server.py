"""The operator's token beside servers that run: started again, several at once, renewed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
from helpers.command_line import Ran, tavern
from helpers.serve_process import Serving, serving


async def _tavern(project: Path, *words: str) -> Ran:
    return await asyncio.to_thread(tavern, "--project", project, *words)


async def _projects(tmp_path: Path) -> tuple[Path, Path]:
    inn, barn = tmp_path / "inn", tmp_path / "barn"
    for project in (inn, barn):
        assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    return inn, barn


async def _status(server: Serving, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(f"{server.base}/api/plugins", headers=headers) as answer:
        return answer.status


async def test_a_server_that_is_started_again_knows_the_token(tmp_path: Path) -> None:
    inn, barn = await _projects(tmp_path)
    async with serving(inn) as first:
        shown = await _tavern(inn, "token", "--json")
        assert shown.json()["url"] == first.url
        await first.stop(signal.SIGKILL)
    async with serving(inn) as again, serving(barn) as other:
        for server in (again, other):
            assert await _status(server, shown.json()["token"]) == 200
    assert (await _tavern(inn, "token")).out.strip() == shown.json()["token"]


async def test_all_servers_hear_of_a_renewed_token(tmp_path: Path) -> None:
    inn, barn = await _projects(tmp_path)
    async with serving(inn) as first, serving(barn, {"TAVERN_TOKEN": "a token of its own"}) as fixed:
        old = (await _tavern(inn, "token")).out.strip()
        renewed = await _tavern(inn, "token", "--renew")
        new = renewed.out.strip()
        assert f"Open {first.base}/?token={new}" in renewed.err
        assert [await _status(first, one) for one in (old, new)] == [401, 200]
        handed = await _tavern(inn, "top", "--once")
        assert (handed.code, f"Run by the server at {first.base}" in handed.err) == (0, True)
        ran = await _tavern(barn, "token", "--renew")
        assert (ran.out.strip(), "has the token of its TAVERN_TOKEN" in ran.err) == ("a token of its own", True)
        assert [await _status(fixed, one) for one in (ran.out.strip(), new)] == [200, 401]
