"""The log of a server: what its lines say, and that nobody else's text can look like one."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from pydantic import JsonValue

from tavern_host import Host, InvalidInput
from tavern_host.common.log_context import logged_with
from tavern_host.contracts.settings import SettingsChange
from tavern_host.testing.http import HttpClient, served
from tavern_operations import server_log as logs
from tavern_operations.server_log import LOG_FILE, server_log

WAIT = {"nodes": [{"id": "w", "fullType": "core:Wait", "inputs": {"value": "x", "seconds": 0}}], "edges": []}


async def _asked(site: HttpClient) -> None:
    for method, path, headers in (
        ("GET", "/api/plugins", {}),
        ("GET", "/api/nowhere", {"X-Request-Id": "mine-1"}),
        ("POST", "/api/prompt", {"X-Request-Id": "two words"}),
        ("GET", "/api/a%0A2026-01-01T00:00:00.000Z%20ERROR%20forged%1b[2J", {}),
        ("GET", "/api/plugins?token=swordfish", {"Authorization": None}),
    ):
        answer = await site.request(method, path, headers=headers, **({"json": WAIT} if method == "POST" else {}))
        request_id = headers.get("X-Request-Id")
        assert (answer.headers["X-Request-Id"] == request_id) is (request_id == "mine-1")


async def test_each_line_says_what_it_is_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers) for name in ("tavern", "asyncio")}
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        private = host.project.private
        with server_log(private, levels=["tavern-nodes=DEBUG"]):
            await _asked(site)
            with logged_with(run="run_1"):
                logging.getLogger("tavern.plugin.tavern-nodes").debug("seen")
                logging.getLogger("tavern.plugin.tavern-engine").debug("not seen")
            try:
                raise ValueError("a\n2026-01-01T00:00:00.000Z ERROR forged: \x1b[2J")
            except ValueError:
                logging.getLogger("tavern.plugins").exception("it failed")
        with server_log(private / "json", format="json"):
            await _asked(site)
    text = (private / LOG_FILE).read_text()
    assert text == capsys.readouterr().err.partition('{"time"')[0], "the file and the terminal differ"
    lines = text.splitlines()
    assert "\x1b" not in text and "swordfish" not in text
    assert [line for line in lines if line.startswith("2026-01-01")] == []
    assert any(" server [request=mine-1 principal=user:operator]: GET /api/nowhere 404, " in line for line in lines)
    assert any("POST /api/prompt 200" in line for line in lines)
    assert not any("GET /api/plugins" in line for line in lines), "what only reads, and strangers, are left out"
    assert any(line.endswith(" DEBUG   tavern-nodes [run=run_1]: seen") for line in lines)
    assert "not seen" not in text
    assert "    ValueError: a" in text and "plugins: it failed" in text
    told = [json.loads(line) for line in (private / "json" / LOG_FILE).read_text().splitlines()]
    assert told[0]["request"] == "mine-1"
    assert {"time", "level", "source", "message"} <= told[0].keys()
    assert before == {name: (logging.getLogger(name).level, logging.getLogger(name).handlers) for name in before}


async def test_a_log_that_cannot_be_written_is_told_and_does_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    with server_log(tmp_path):
        logging.getLogger("tavern.server").info("all the same")
    said = capsys.readouterr().err
    assert "no log is written to" in said and "all the same" in said
    with Failures() as failures:
        for wrong in ("LOUD", "=INFO", "x=", "tavern-engine=LOUD", ""):
            with (
                failures.row(wrong),
                pytest.raises(InvalidInput, match="--log-level"),
                server_log(tmp_path, levels=[wrong]),
            ):
                pass
    with pytest.raises(InvalidInput, match="there are text and json"), server_log(tmp_path, format="xml"):
        pass


def test_the_log_is_private_bounded_and_follows_no_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 5_000)
    log = logging.getLogger("tavern.server")
    with server_log(tmp_path / "inn"):
        for number in range(500):
            log.info("line %d %s", number, "x" * 50)
    files = [*(tmp_path / "inn" / "log").iterdir()]
    assert len(files) == logs.LOG_FILES + 1
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    assert max(one.stat().st_size for one in files) <= 5_000
    assert "line 499 " in (tmp_path / "inn" / LOG_FILE).read_text()

    outside = tmp_path / "outside"
    outside.write_text("mine")
    for place in ("file", "folder", "later"):
        (tmp_path / place).mkdir()
    (tmp_path / "file" / "log").mkdir()
    (tmp_path / "file" / LOG_FILE).symlink_to(outside)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder" / "log").symlink_to(tmp_path / "elsewhere")
    capsys.readouterr()
    for place in ("file", "folder"):
        with server_log(tmp_path / place):
            log.info("hello")
        said = capsys.readouterr().err
        assert (said.count("no log is written to"), said.count("hello")) == (1, 1), said
    with server_log(tmp_path / "later"):
        log.info("hello")
        shutil.rmtree(tmp_path / "later" / "log")
        (tmp_path / "later" / "log").write_text("the next rotation fails, and each line after it")
        for number in range(200):
            log.info("hello %d %s", number, "x" * 50)
    said = capsys.readouterr().err
    assert (said.count("no log is written to"), said.count("hello")) == (1, 201)
    assert outside.read_text() == "mine"
    assert [*(tmp_path / "elsewhere").iterdir()] == []


async def test_secrets_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    options: list[dict[str, JsonValue]] = [
        {"key": "extensions.acme.key", "type": "string", "secret": True, "label": "Key"},
        {"key": "extensions.acme.pin", "type": "number", "secret": True, "label": "Pin"},
        {"key": "extensions.acme.many", "type": "json", "secretKeys": ["key"], "label": "Servers"},
    ]
    write_plugin(tmp_path / "acme", {"__init__.py": ""}, configOptions=options)
    servers = [{"name": "visible", "key": "deep-hunter2"}, {"key": "ab"}]
    values = {"key": "long-hunter2", "pin": 123456789, "many": servers}
    settings = {f"extensions.acme.{key}": value for key, value in values.items()}
    log = logging.getLogger("tavern.server")
    async with Host(tmp_path / "inn", plugins=[tmp_path / "acme"], trust=["acme"], settings=settings) as host:
        assert host.plugin("acme").problems == []
        with server_log(tmp_path, secrets=host.settings.secrets):
            log.warning("a=long-hunter2, b=%d, c=%s, about to be visible", 123456789, servers)
            for text in ("Authorization: Bearer sk-hunter2", "/x?token=hunter2xx&a=1", '{"api_key": "hunter2xx"}'):
                log.warning(text)
            try:
                raise ValueError("no long-hunter2")
            except ValueError:
                log.exception("password=hunter2xx")
            await host.settings.save(SettingsChange(plugin="acme", values={"key": "another-hunter2"}))
            log.warning("now another-hunter2; 12 tokens: fine")
    text = (tmp_path / LOG_FILE).read_text()
    assert "hunter2" not in text and "123456789" not in text
    assert "about to be visible" in text and "'name': 'visible'" in text and "12 tokens: fine" in text
    assert text.count("********") >= 9


async def test_health_is_told_without_the_token_and_readiness_with_reasons(tmp_path: Path) -> None:
    without = {"Authorization": None}
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        assert await (await site.get("/healthz", headers=without)).json() == {"status": "ok"}
        ready = await site.get("/readyz", headers=without)
        assert (ready.status, await ready.json()) == (200, {"status": "ready", "problems": []})
        elsewhere = await site.get("/healthz", headers={**without, "Host": "evil.example"})
        assert elsewhere.status == 421
        assert (await site.get("/healthz/../api/plugins", headers=without)).status == 401
        host.audit.problem = "it is full"
        broken = await site.get("/readyz", headers=without)
        assert broken.status == 503
        assert (await broken.json())["problems"] == ["project: the audit log cannot be written"]
        host.audit.problem = None
