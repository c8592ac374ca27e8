"""Values that no wire carries, and bodies that are no JSON, sent to every route and message that takes some."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from helpers.repetition import Failures, repetitions
from helpers.systems import on_linux
from helpers.tavern_project import Tavern

from tavern_host import Host
from tavern_host.contracts.documents import LARGE_TEXT
from tavern_host.testing.http import HttpClient, served

DIGITS = "9" * 5000
REFUSED = {
    "64 bits": str(2**63),
    "5,000 digits": DIGITS,
    "negative": f"-{DIGITS}",
    "NaN": "NaN",
    "infinity": "-Infinity",
    "1e999": "1e999",
    "101 levels": "[" * 101 + "]" * 101,
    "256 levels": "[" * 256 + "]" * 256,
    "256 objects": '{"a":' * 256 + "1" + "}" * 256,
    "100,000 levels": "[" * 100_000 + "]" * 100_000,
    "no JSON": "oops",
    "half a character": r'"a\ud83c"',
    "half a key": r'{"\udf7a": 1}',
    "half, as bytes": '"\udced\udca0\udcbc"',
    "no UTF-8": '"\udcff"',
}
BODIES = {
    "POST /api/tools/execute": ('{"toolId": @}', '{"toolId": "shout", "arguments": {"text": [1, @]}}', '{"text": @}'),
    "POST /api/approvals/task_1": ('{"decision": "approve", "arguments": {"a b": @}}', '{"decision": @}'),
    "POST /api/agents/keeper/run": ('{"message": @}', '{"message": "x", "maxSteps": @}'),
    "POST /api/prompt": ('{"workflowId": "think", "inputs": {"messages": [@]}}', '{"nodes": [@]}', '{"priority": @}'),
    "POST /api/nodes/core:Text/actions/x": ('{"inputs": {"text": @}}', '{"config": @}'),
    "PUT /api/plugins/tavern-llm/state": ('{"enabled": @}',),
    "POST /api/plugins/tavern-llm/settings": ('{"models": {"m": @}}', '{"@": @}'),
    "POST /api/projects": ('{"path": @}',),
}
LARGE = (
    "POST /api/prompt",
    "POST /api/layout",
    "POST /api/workflows/check",
    "POST /api/tools/execute",
    "POST /api/approvals/task_1",
    "POST /api/agents/keeper/run",
    "POST /api/agents/keeper/runs",
    "POST /api/histories",
    "POST /api/nodes/core:Text/actions/x",
    "POST /api/patches/check",
    "POST /api/assistant/requests",
)
"""Routes that may get much at once."""
TORN = ("", "{", '{"a": }', '{"text": "a\nb"}', "\udcff\udcfe")
WRONG = ("[]", "3", "null", '"text"', "[[]]", '{"nodes": 3}', '{"nodes": [3]}', '{"nodes": [{"policy": 3}]}')
"""Bodies of the wrong shape."""
CLASSES = ("pydantic", "Prompt", "RunBody", "Values", "instance of", "Error", "Model", "class ")


async def check_refused(site: HttpClient, route: str, body: str, place: str) -> None:
    """Assert that a body is refused in words that say where, and name no class."""
    method, path = route.split(" ")
    answer = await site.request(method, path, data=body.encode("utf-8", "surrogateescape"))
    told, code = (await answer.json())["error"], (await answer.json())["code"]
    assert (answer.status, code) in ((400, "invalid_input"), *([] if place else [(404, "not_found")])), told[:300]
    assert place in told, told[:300]
    assert not any(name in told.replace("PROMPT_REQUEST", "") for name in CLASSES), told
    assert len(told) < 1000


@on_linux  # where no file is looked at once more for each call
async def test_no_route_takes_what_no_wire_carries(tmp_path: Path) -> None:
    async with Host(project=Tavern(tmp_path / "project").root) as host, served(host) as site:
        rng = random.Random(7)
        with Failures() as failures:
            for route, bodies in BODIES.items():
                for body in bodies:
                    some = rng.sample(sorted(REFUSED), repetitions(2, len(REFUSED)))
                    for name in some:
                        with failures.row((route, body, name)):
                            await check_refused(site, route, body.replace("@", REFUSED[name]), "the body")
                for body in (*WRONG, *TORN):
                    with failures.row((route, body)):
                        await check_refused(site, route, body, "the body is not " if body in TORN[1:] else "")
        on_loop: list[str] = []
        events: Counter[str] = Counter()

        def look(frame: FrameType, event: str, argument: object) -> None:
            events[event] += 1
            if event == "call" and frame.f_code is json.JSONDecoder.decode.__code__:
                on_loop.append(frame.f_locals["s"].strip())

        large = '{"projectId": "default", "x": [@]}'.replace("@", REFUSED["64 bits"])
        with Failures() as failures:
            for route in LARGE:
                with failures.row(route):
                    on_loop.clear()
                    sys.setprofile(look)
                    try:
                        await check_refused(site, route, " " * LARGE_TEXT + large, "$.x[0]: an int must have at most")
                    finally:
                        sys.setprofile(None)
                    assert large not in on_loop
                    assert on_loop  # the answer was read here
        await site.post("/api/tools/execute", json={"toolId": "no:tool"})  # what answers is made once
        lists = {"toolId": "no:tool", "arguments": {"x": [[]] * 100_000}}
        sys.setprofile(look)
        try:
            events.clear()
            answer = await site.post("/api/tools/execute", json=lists)
        finally:
            sys.setprofile(None)
        assert (await answer.json())["results"][0]["status"] == "error"
        assert 0 < events["call"] < 50_000  # nothing is called for each value
        socket = await site.socket()
        with Failures() as failures:
            for name, value in REFUSED.items():
                if "\udced" in value or "\udcff" in value:
                    continue  # a client cannot send it as text
                for text in ('{"type": @}', '{"type": "PROMPT_REQUEST", "payload": {"inputs": {"x": @}}}'):
                    with failures.row((name, text)):
                        await socket.send_str(text.replace("@", value))
                        told: Any = await socket.receive_json(timeout=60)
                        assert told["type"] == "error"
                        assert told["payload"]["message"].startswith("the message")


async def test_no_route_replaces_half_a_character(tmp_path: Path) -> None:
    """Every route that takes JSON, as the host describes them."""
    said = Counter[bool]()
    async with Host(project=Tavern(tmp_path / "project").root) as host, served(host) as site:
        described = await (await site.get("/api/openapi.json")).json()
        with Failures() as failures:
            for path, methods in described["paths"].items():
                for method, about in methods.items():
                    if "application/json" not in about.get("requestBody", {}).get("content", {}):
                        continue
                    asked = re.sub(r"\{[^}]+\}", "none", path)
                    for body in (
                        b'{"text": "a\\ud83c"}',
                        b'{"a\\udf7a": 1}',
                        b'{"text": "\xed\xa0\xbc"}',
                        b'{"a": "\xff"}',
                    ):
                        answer = await site.request(method.upper(), asked, data=body)
                        told = (await answer.json())["error"] if answer.status >= 400 else ""
                        said["half of a surrogate pair" in told or "is not UTF-8 text (byte 7)" in told] += 1
                        with failures.row((method, path, body)):
                            assert 400 <= answer.status < 500, await answer.text()
    assert said[True] > 3 * said[False]
