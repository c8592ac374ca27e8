"""`Plugins.trace`: who follows a plugin sees its calls, and nothing is observed while nobody does."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import until
from plugin_maker import host_with, make_plugin, problems_of

from tavern_devtools.call_tracing import shortly
from tavern_host import EXECUTION_ENGINE, PLUGINS, Host
from tavern_host.contracts.errors import Conflict, NotFound, Vetoed
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

CODE = """
from tavern_host import HttpResponse, RouteInfo, hookimpl

COUNT = []

@hookimpl
async def tavern_before_execute(request, call, context):
    COUNT.append(1)
    if len(COUNT) % 2 == 0:
        raise ValueError("even number")
    return request

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/hi", handler=f"{__name__}:hi")]

async def hi(request, context):
    return HttpResponse(data={})
"""
HOOKED = ("tavern_before_execute", "tavern_register_routes")
RUN = RunRequest(workflow=Workflow(name="Nothing"))


class Follower:
    """Follows a plugin in a task, as a terminal does."""

    def __init__(self, host: Host, plugin: str = "acme") -> None:
        self.seen: list[Event | Gap] = []
        self._calls = host.services.get(PLUGINS).trace(plugin)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for one in self._calls:
            self.seen.append(one)

    async def said(self, count: int) -> list[dict[str, Any]]:
        """Return that many calls, without their times."""
        await until(lambda: len(self.seen) >= count)
        calls = [one for one in self.seen if isinstance(one, Event)]
        return [{"kind": one.type, **{k: v for k, v in one.payload.items() if k != "ms"}} for one in calls]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def _run(host: Host) -> None:
    await host.services.get(EXECUTION_ENGINE).run(RUN)


async def _followers(host: Host, count: int, plugin: str = "acme") -> list[Follower]:
    found = [Follower(host, plugin) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_followers_see_how_each_call_ended(tmp_path: Path, placement: Any) -> None:
    folder = make_plugin(tmp_path, "acme", CODE, hooked=HOOKED)
    async with host_with(tmp_path / "p", folder, placement=placement) as host:
        await _run(host)  # nobody looks
        one, other = await _followers(host, 2)
        with pytest.raises(Vetoed, match=r"even number \(acme/__init__.py:10\)"):
            await _run(host)
        await _run(host)
        about = {"kind": "HOOK", "name": "tavern_before_execute", "caller": "executionEngine for user:operator"}
        for follower in (one, other):
            failed, done = await follower.said(2)
            assert "ValueError: even number" in failed.pop("error")
            assert failed == {**about, "file": str(folder / "__init__.py"), "line": 10}
            assert done == {**about, "result": "RunRequest"}
        await one.stop()
        with pytest.raises(Vetoed):
            await _run(host)
        assert (len(await other.said(3)), len(one.seen)) == (3, 2)
        await other.stop()
        host.audit.flush()
        assert [entry.subject for entry in host.audit.store.tail(50) if entry.action == "plugin.traced"] == ["acme"] * 2


async def test_no_secret_is_cut_in_what_an_error_says(tmp_path: Path) -> None:
    secret = "sk-0123456789abcdefghijklmnopqrstuv"
    said = f'raise ValueError("word " * 55 + "{secret} and more " * 30)'
    folder = make_plugin(tmp_path, "acme", CODE.replace('raise ValueError("even number")', said), hooked=HOOKED)
    async with host_with(tmp_path / "p", folder) as host:
        (follower,) = await _followers(host, 1)
        await _run(host)
        with pytest.raises(Vetoed):
            await _run(host)
        error = (await follower.said(2))[1]["error"]
        assert len(error) <= 300 and "word word" in error and "sk-01" not in error.replace(secret, "")
        await follower.stop()


async def test_a_reloaded_plugin_is_followed_still(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path / "p" / "plugins", "acme", CODE, hooked=HOOKED)
    async with Host(tmp_path / "p", trust=["acme"]) as host:
        (follower,) = await _followers(host, 1)
        (folder / "__init__.py").write_text(CODE.replace("len(COUNT) % 2 == 0", "True"))
        await host.reload("acme")
        assert host.plugin("acme").state is PluginState.STARTED, problems_of(host)
        with pytest.raises(Vetoed):
            await _run(host)
        assert any("error" in one for one in await follower.said(2))
        await follower.stop()


async def test_methods_of_a_service_tell_who_calls(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p") as host:
        workflows = host.services.get(WORKFLOW_MANAGER)
        before = await workflows.list_workflows()
        (follower,) = await _followers(host, 1, "tavern-workflows")
        assert await workflows.list_workflows() == before
        with pytest.raises(NotFound):
            await workflows.get("absent")
        listed, missed = await follower.said(2)
        about = {"kind": "SERVICE", "caller": "user:operator"}
        assert listed == {**about, "name": "workflowManager.list_workflows", "result": "list of 0"}
        assert (missed["name"], "absent" in missed["error"]) == ("workflowManager.get", True)
        await follower.stop()
        await workflows.list_workflows()
        assert len(follower.seen) == 2


async def test_what_cannot_be_followed_says_why(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", CODE, hooked=HOOKED)
    async with host_with(tmp_path / "p", folder, trust=[]) as host:
        plugins = host.services.get(PLUGINS)
        with pytest.raises(NotFound, match="did you mean acme?"):
            await anext(aiter(plugins.trace("acm")))
        with pytest.raises(Conflict, match="acme is not loaded, so nothing of it is called; .* waits for review"):
            await anext(aiter(plugins.trace("acme")))


async def test_a_slow_reader_loses_the_oldest_and_gets_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tavern_devtools.call_tracing.MOST_WAITING", 3)
    async with host_with(tmp_path / "p") as host:
        workflows = host.services.get(WORKFLOW_MANAGER)
        calls = aiter(host.services.get(PLUGINS).trace("tavern-workflows"))
        first = asyncio.create_task(anext(calls))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(10):
            await workflows.list_workflows()
        seen = [await first, *[await anext(calls) for _ in range(3)]]
        gaps = [one.last - one.first + 1 for one in seen if isinstance(one, Gap)]
        assert sum(gaps) + sum(isinstance(one, Event) for one in seen) <= 10
        assert sum(gaps) >= 6
        await calls.aclose()  # type: ignore[attr-defined]


async def test_a_hook_that_fails_by_no_code_of_its_own_is_placed_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "from tavern_host import hookimpl\n\n@hookimpl\ndef tavern_before_execute(request):\n    return 3\n"
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_before_execute"])
    async with host_with(tmp_path / "p", folder) as host:
        with caplog.at_level(logging.ERROR, "tavern"), pytest.raises(Vetoed, match=r"\(acme/__init__.py:[34]\)$"):
            await _run(host)
        assert problems_of(host)[0].startswith(f"{folder / '__init__.py'}:")
        assert f"({folder / '__init__.py'}:" in caplog.text


def test_results_are_named_and_texts_never_quoted() -> None:
    rows = {
        "None": None,
        "3": 3,
        "text of 6": "s3cret",
        "bytes of 2": b"ab",
        "list of 2 str": ["a", "b"],
        "list of 2": ["a", 1],
        "dict of 1": {"apiKey": "s3cret"},
        "Veto": Veto(reason="s3cret"),
        "RunRequest": RUN,
    }
    assert {said: shortly(value) for said, value in rows.items()} == {said: said for said in rows}
