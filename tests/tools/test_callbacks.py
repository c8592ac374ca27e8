"""The ends of tasks told to addresses: signed, tried again, to hosts that the operator listed and no others."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from helpers.ports import free_port
from helpers.repetition import Failures
from helpers.waiting import until
from task_bench import TaskBench, caller, opened

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_tools.api.toolcalls import TaskCallback, TaskStatus, ToolTask

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


async def final_callback(bench: TaskBench, task: ToolTask, *, tried: bool = False) -> Any:
    """Return a task's callback once it has ended, or with `tried` once it was tried."""

    async def final() -> TaskCallback | None:
        callback: Any = (await bench.get(task)).callback
        return callback if callback.status != "waiting" or (tried and callback.attempts) else None

    return await until(final, f"the end of the callback of {task.id}")


async def test_every_end_is_told_with_a_signature(tmp_path: Path) -> None:
    statuses = [204, 204, 204, 503, 204, 301, 307, 400, 404]
    async with (
        receiving(*statuses) as receiver,
        opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench,
    ):
        task = await bench.submit(callback=receiver.url, gives={"n": 1}, apiKey="hunter2")
        callback = await final_callback(bench, task)
        assert (callback.status, callback.attempts, callback.error) == ("delivered", 1, None)
        assert callback.delivered_at is not None
        failed = await bench.submit(callback=receiver.url, fails="no")
        await final_callback(bench, failed)
        cancelled = await bench.submit(callback=receiver.url, seconds=60)
        await bench.tasks.cancel(cancelled.id, caller())
        await final_callback(bench, cancelled)
        callback = await final_callback(bench, await bench.submit(callback=receiver.url))  # a failure is tried again
        assert (callback.status, callback.attempts, callback.error) == ("delivered", 2, None)
        for status in statuses[5:]:  # a refusal or redirect is not
            refused = await bench.submit(callback=receiver.url)
            callback = await final_callback(bench, refused)
            assert (await bench.ended(refused)).status is TaskStatus.DONE
            assert (callback.status, callback.attempts) == ("failed", 1)
            assert callback.error == f"{receiver.place} answered {status}"
            assert callback.url == f"http://{receiver.place}/told?…"
    (headers, body), *others = receiver.requests
    stamp = headers["X-Tavern-Timestamp"]
    digest = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert (headers["X-Tavern-Signature"], headers["X-Tavern-Delivery"]) == (f"sha256={digest}", task.id)
    assert abs(clock.seconds() - int(stamp)) < 600
    told = json.loads(body)
    assert (told["type"], told["task"]["id"], told["task"]["status"]) == ("toolTask.ended", task.id, "done")
    assert (told["task"]["result"]["structured"], told["task"]["arguments"]["apiKey"]) == ({"n": 1}, MASK)
    ends = [(one["id"], one["status"]) for one in (json.loads(body)["task"] for _, body in others[:2])]
    assert ends == [(failed.id, "error"), (cancelled.id, "cancelled")]
    assert others[2][1] == others[3][1]
    assert len(receiver.requests) == len(statuses)


ELSEWHERE = [
    *("http://127.0.0.1:81/", "http://127.0.0.2:80/", "http://example.org:443/", "https://example.org.evil.com/"),
    "https://a.example.org:8443/",
]
NO_ADDRESS = [
    *("ftp://127.0.0.1:80/", "http://user:secret@127.0.0.1:80/", "http://127.1:80/"),
    *("http://2130706433:80/", "http://0x7f000001:80/", "http://127.0.0.1:99999/", "http:///nowhere"),
    *("http://127.0.0.1:80/\r\nX-Evil: 1", "http://127.0.0.1:80\\@evil.com/", "//127.0.0.1:80/", ""),
    "http://127.0.0.1:80/" + "a" * 9000,
]


async def test_only_what_the_operator_listed_is_called(tmp_path: Path) -> None:
    setting = {"settings": {"extensions.acme-tasks.callbackHosts": ["127.0.0.1:80"]}}
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "tavern.yaml").write_text(json.dumps(setting))
    async with opened(tmp_path / "p", callbackSecret=SECRET) as bench:  # a project lists none
        with pytest.raises(PermissionDenied):
            await bench.submit(callback="http://127.0.0.1:80/")
    async with opened(tmp_path / "p", callbackHosts=["127.0.0.1:80"]) as bench:
        with pytest.raises(PermissionDenied, match="callbackSecret is empty"):
            await bench.submit(callback="http://127.0.0.1:80/")
    receiver_port = free_port()
    hosts = ["127.0.0.1:80", "*.example.org", f"*:{receiver_port}"]
    async with (
        receiving(port=receiver_port) as receiver,
        opened(tmp_path / "p", callbackHosts=hosts, callbackSecret=SECRET) as bench,
    ):
        with Failures() as failures:
            for url in [*ELSEWHERE, receiver.url]:
                with failures.row(url), pytest.raises(PermissionDenied, match="the operator's setting callbackHosts"):
                    await bench.submit(callback=url)
            for url in NO_ADDRESS:
                with failures.row(url), pytest.raises(InvalidInput):
                    await bench.submit(callback=url)
        assert await bench.tasks.list(None, caller()) == []
        # a name that leads to a private address is not followed
        callback = await final_callback(bench, await bench.submit(callback=f"http://localhost:{receiver.port}/"))
        assert (callback.status, receiver.requests) == ("failed", [])
        assert "localhost leads to the private address" in callback.error


async def test_an_absent_receiver_is_tried_again(tmp_path: Path) -> None:
    async with receiving(port=free_port()) as receiver:  # no other process is given it meanwhile
        pass
    async with opened(tmp_path / "p", callbackHosts=[receiver.place], callbackSecret=SECRET) as bench:
        task = await bench.submit(callback=receiver.url)
        callback = await final_callback(bench, task, tried=True)
        assert callback.status == "waiting"
        assert "Cannot connect" in callback.error
        async with receiving(port=receiver.port):
            assert (await final_callback(bench, task)).status == "delivered"
