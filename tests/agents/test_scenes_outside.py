"""Scenes by `tavern scene` and over HTTP, with the sample's scene and its scripted model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.repetition import Failures

import tavern_demo
from tavern_host import Host
from tavern_host.contracts.events import Event
from tavern_host.testing.http import served
from tavern_worlds.api.scenes import SCENE_MANAGER

TALK = [
    "Mira: There, a light at last. Come in out of the rain!",
    "Tomas: Thank you. I am looking for my brother. Did he come by?",
    "Mira: A man with your eyes slept here two nights ago. He left for the lighthouse.",
    "Tomas: Then I leave at dawn. Keep the lamp burning, Mira.",
]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Return a copy of the sample project."""
    return Path(shutil.copytree(Path(tavern_demo.__file__).parent / "sample", tmp_path / "sample"))


def scene(project: Path, *arguments: str) -> Ran:
    return tavern("--project", project, "scene", *arguments)


def test_two_characters_talk_in_the_terminal(sample: Path) -> None:
    started = scene(sample, "start", "inn")
    assert (started.code, started.out.splitlines()) == (0, TALK), started.err
    assert json.loads(scene(sample, "state", "inn").out) == {"lamp": "lit", "weather": "rain"}
    woken = scene(sample, "publish", "inn", "weather.storm", "--payload", '{"wind": 9}')
    assert woken.out == "Mira: Listen to that weather!\n"
    assert "Woken: mira" in woken.err
    said = scene(sample, "say", "inn", "--message", "Hello.", "--name", "Ann", "--turns", "1")
    assert said.out == "Mira: Stay as long as you like.\n"
    shown = scene(sample, "show", "inn").out.splitlines()
    assert [line for line in shown if line.startswith(("Mira:", "Tomas:", "Ann:"))] == [
        *TALK,
        "Mira: Listen to that weather!",
        "Ann: Hello.",
        "Mira: Stay as long as you like.",
    ]
    changed = scene(sample, "state", "inn", "--set", '{"lamp": null}', "--revision", "1", "--json").json()
    assert (changed["state"], changed["revision"]) == ({"weather": "rain"}, 2)
    listed = scene(sample, "list", "--json").json()
    assert [one["id"] for one in listed["scenes"]] == ["inn"]
    assert [run["status"] for run in listed["runs"]] == ["running"]
    assert scene(sample, "stop", "inn").out.endswith(": ended\n")
    rows = [
        (("start", "in"), "there is no scene 'in' (did you mean inn?)"),
        (("show", "cellar"), "no scene 'cellar' was started; `tavern scene list` lists them"),
        (("say", "inn", "--message", "x"), "has ended; start 'inn' again"),
        (("state", "inn", "--set", "[]"), "--set must be a JSON object, not an array"),
    ]
    with Failures() as failures:
        for arguments, part in rows:
            with failures.row(arguments):
                ran = scene(sample, *arguments)
                assert (ran.code, part in ran.error) == (2, True), ran.err


async def test_scenes_over_http(sample: Path) -> None:
    async with Host(project=sample) as host, served(host) as site:
        changes, scenes = host.events.subscribe("SCENE_UPDATE"), host.services.get(SCENE_MANAGER)

        async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            answer = await site.request(method, path, **({} if body is None else {"json": body}))
            return answer.status, await answer.json()

        status, run = await ask("POST", "/api/scenes/inn/runs")
        assert (status, run["status"]) == (201, "running")
        path = f"/api/scene-runs/{run['id']}"
        await scenes.wait(run["id"])
        rows: list[tuple[str, Any, int, Any]] = [
            ("world", {"state": {"lamp": "out"}, "revision": 1}, 200, {"lamp": "out", "weather": "rain"}),
            ("world", {"state": {}, "revision": 1}, 409, "the revision 2, not 1; read it again"),
            ("world", {"lamp": "out"}, 400, "$.state: Field required"),
            ("events", {"eventType": "weather.sun"}, 202, ["mira"]),
            ("events", {"eventType": "a b"}, 400, "$.type"),
            ("messages", {"message": "Hello.", "turns": 0}, 202, 0),
            ("messages", {"message": "Hello.", "turns": -1}, 400, "$.turns"),
        ]
        values = {"world": "state", "events": "woken", "messages": "turns"}
        with Failures() as failures:
            for action, body, expected, part in rows:
                with failures.row(body):
                    status, answer = await ask("POST", f"{path}/{action}", body)
                    assert status == expected, answer
                    assert part in answer["message"] if status >= 400 else part == answer[values[action]]
        await scenes.wait(run["id"])
        assert (await ask("GET", path))[1]["world"] == {"lamp": "out", "weather": "rain"}
        assert (await ask("POST", f"{path}/stop"))[1]["status"] == "ended"
        assert [one["id"] for one in (await ask("GET", "/api/scene-runs"))[1]] == [run["id"]]
        assert [one["id"] for one in (await ask("GET", "/api/scenes"))[1]] == ["inn"]
        assert (await ask("GET", "/api/scene-runs/cellar"))[0] == 404
        await changes.close()
        told = [event.payload async for event in changes if isinstance(event, Event)]
    changed = ["started", "world", "said", "said", "said", "said", "world", "event", "said", "said", "ended"]
    assert [one["change"] for one in told] == changed
    assert told[2] == {"sceneRunId": run["id"], "sceneId": "inn", "change": "said", "name": "Mira", "text": TALK[0][6:]}
