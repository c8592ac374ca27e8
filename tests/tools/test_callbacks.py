"""The ends of tasks told to addresses: signed, tried again, to hosts that the operator listed and no others."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from task_bench import Child, TaskBench, caller, opened

from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import TaskCallback, TaskStatus, ToolTask

SECRET = "a secret of the operator"


@dataclass
class Receiver:
    """A server that answers with these statuses, one after the other, the last one for ever."""

    port: int
    statuses: list[int]
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/told?token=of-the-receiver"

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        headers = {"Location": f"http://{self.place}/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, headers=headers)


@asynccontextmanager
async def receiving(*statuses: int, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(port, list(statuses) or [204])
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def settled(bench: TaskBench, task: ToolTask) -> TaskCallback:
    """Return what became of a task's callback."""
    async with asyncio.timeout(60):
        while True:
            callback = (await bench.tasks.get(task.id, 0, caller())).callback
            if callback.status != "waiting":
                return callback
            await asyncio.sleep(0.05)


async def test_the_end_of_a_task_is_told_with_a_signature(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench,
    ):
        task = await bench.submit(callback=receiver.url, gives={"n": 1}, apiKey="hunter2")
        callback = await settled(bench, task)
    assert (callback.status, callback.attempts, callback.error) == ("delivered", 1, None)
    assert callback.delivered_at is not None
    ((headers, body),) = receiver.requests
    stamp = headers["X-Tavern-Timestamp"]
    digest = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Tavern-Signature"] == f"sha256={digest}"
    assert headers["X-Tavern-Delivery"] == task.id
    assert abs(time.time() - int(stamp)) < 60
    told = json.loads(body)
    assert told["type"] == "toolTask.ended"
    assert (told["task"]["id"], told["task"]["status"]) == (task.id, "done")
    assert told["task"]["result"]["structured"] == {"n": 1}
    assert told["task"]["arguments"]["apiKey"] == MASK


async def test_every_kind_of_end_is_told(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench,
    ):
        failed = await bench.submit(callback=receiver.url, fails="no")
        cancelled = await bench.submit(callback=receiver.url, seconds=60)
        await bench.tasks.cancel(cancelled.id, caller())
        for task in (failed, cancelled):
            await settled(bench, task)
    told = {(t := json.loads(body)["task"])["id"]: t["status"] for _, body in receiver.requests}
    assert told == {failed.id: "error", cancelled.id: "cancelled"}


async def test_a_receiver_that_fails_is_tried_again(tmp_path: Path) -> None:
    async with (
        receiving(503, 204) as receiver,
        opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench,
    ):
        callback = await settled(bench, await bench.submit(callback=receiver.url))
    assert (callback.status, callback.attempts, callback.error) == ("delivered", 2, None)
    assert receiver.requests[0][1] == receiver.requests[1][1]


async def test_a_refusal_or_redirect_is_not_tried_again(tmp_path: Path) -> None:
    statuses = [301, 307, 400, 404]
    async with (
        receiving(*statuses) as receiver,
        opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench,
    ):
        for status in statuses:
            task = await bench.submit(callback=receiver.url)
            callback = await settled(bench, task)
            assert (await bench.ended(task)).status is TaskStatus.DONE
            assert (callback.status, callback.attempts) == ("failed", 1)
            assert callback.error == f"{receiver.place} answered {status}"
            assert callback.url == f"http://{receiver.place}/told?…"
    assert len(receiver.requests) == len(statuses)


async def test_what_a_killed_host_was_to_tell_is_told_by_the_next(tmp_path: Path) -> None:
    async with receiving() as receiver:
        settings = {"callbackHosts": [receiver.place], "callbackSecret": SECRET}
        child = Child(
            tmp_path / "p",
            f"""
task = await bench.submit(seconds=60, callback={receiver.url!r})
await bench.is_at(task, TaskStatus.RUNNING)
say(task.id)
await asyncio.sleep(60)
""",
            settings=settings,
        )
        assert await child.said() == "ready"
        task_id = await child.said()
        child.kill()
        async with opened(tmp_path / "p", **settings) as bench:
            task = await bench.ended(task_id)
            assert (await settled(bench, task)).status == "delivered"
    assert json.loads(receiver.requests[0][1])["task"]["status"] == "unknown"


async def test_a_task_with_a_callback_that_is_not_allowed_is_not_accepted(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", callbackHosts=["127.0.0.1:80", "*.example.org:443"], callbackSecret="s") as bench:
        for url in (
            "http://127.0.0.1:81/",
            "http://127.0.0.2:80/",
            "http://example.org:443/",
            "https://example.org.evil.com/",
            "https://a.example.org:8443/",
        ):
            with pytest.raises(PermissionDenied, match="are not allowed: the operator's setting callbackHosts"):
                await bench.submit(callback=url)
        for url in (
            "ftp://127.0.0.1:80/",
            "http://user:secret@127.0.0.1:80/",
            "http://127.0.0.1:80/#part",
            "http://127.1:80/",
            "http://2130706433:80/",
            "http://0x7f000001:80/",
            "http://127.0.0.1:99999/",
            "http:///nowhere",
            "http://127.0.0.1:80/\r\nX-Evil: 1",
            "http://127.0.0.1:80\\@evil.com/",
            "//127.0.0.1:80/",
            "",
            "http://127.0.0.1:80/" + "a" * 5000,
        ):
            with pytest.raises(InvalidInput):
                await bench.submit(callback=url)
        assert await bench.tasks.list(None, caller()) == []


async def test_callbacks_need_a_secret_and_the_operators_leave(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", callbackHosts=["127.0.0.1:80"]) as bench:
        with pytest.raises(PermissionDenied, match="callbackSecret is empty"):
            await bench.submit(callback="http://127.0.0.1:80/")
    settings = {"settings": {"extensions.acme-tasks.callbackHosts": ["127.0.0.1:80"]}}
    (tmp_path / "p" / "tavern.yaml").write_text(json.dumps(settings))
    async with opened(tmp_path / "p", callbackSecret=SECRET) as bench:
        with pytest.raises(PermissionDenied):
            await bench.submit(callback="http://127.0.0.1:80/")


async def test_a_name_that_leads_to_a_private_address_is_not_followed(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        opened(tmp_path / "p", callbackHosts=["loc*:*", "*:*"], callbackSecret=SECRET) as bench,
    ):
        task = await bench.submit(callback=f"http://localhost:{receiver.port}/")
        callback = await settled(bench, task)
        with pytest.raises(PermissionDenied):
            await bench.submit(callback=receiver.url)
    assert callback.status == "failed"
    assert "localhost leads to the private address" in str(callback.error)
    assert receiver.requests == []


async def test_a_receiver_that_is_not_there_is_tried_again_and_the_error_shown(tmp_path: Path) -> None:
    async with receiving() as receiver:
        pass
    async with opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench:
        task = await bench.submit(callback=receiver.url)
        while True:
            callback = (await bench.tasks.get(task.id, 0, caller())).callback
            if callback.attempts:
                break
            await asyncio.sleep(0.05)
        assert callback.status == "waiting"
        assert "Cannot connect" in str(callback.error)
        async with receiving(port=receiver.port):
            assert (await settled(bench, task)).status == "delivered"
