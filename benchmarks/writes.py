"""Kills a server under load at random moments, and looks after each new start for every write that it had acknowledged:
workflows saved, runs accepted, messages kept, settings saved, grants given and taken back, and their audit entries.

A write in flight at the kill may be there or not, whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError

from benchmarks.harness import Result
from benchmarks.load import ASKS, Load, workflow, write_project
from benchmarks.serving import Served, server_of

KILLS = 60
SEED = 11
WINDOW = 1.5
"""Up to how many seconds after the server is ready it is killed."""
_SETTING = "extensions.tavern-engine.rememberRunsMegabytes"
_SETTINGS = "/api/plugins/tavern-engine/settings"
_TALK = "/api/histories/talk"


@dataclass
class Ledger:
    """What a server has acknowledged, and what may be there besides: the write that was in flight at the kill."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    states: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """By what is written over again: the value that was acknowledged last, and the one that was tried last."""
    number: int = 0

    async def write(self, what: str, value: Any, send: Awaitable[tuple[int, Any, Any]]) -> Any:
        """Send a write of a value; return the answer."""
        before = self.states.get(what, (None, None))[0]
        self.states[what] = before, value
        status, answer, headers = await send
        if status not in (200, 201):
            raise RuntimeError(f"{what} {value!r} was refused with {status}: {answer}")
        self.states[what] = value, value
        self.acknowledged[what] += 1
        return answer, headers

    def look(self, what: str, found: Any) -> None:
        """Say where what is there now is neither what was acknowledged nor what was tried."""
        acknowledged, tried = self.states.get(what, (None, None))
        if acknowledged is not None and found not in (acknowledged, tried):
            self.lost.append(f"{what}: {found!r} is there, acknowledged was {acknowledged!r}")
        if what in self.states:
            self.states[what] = found, found


async def kill_often(kills: int, seed: int, place: Path, window: float = WINDOW) -> Ledger:
    """Kill servers of one project so often, one after the other; return what they acknowledged, and what was lost."""
    write_project(place / "project")
    ledger, chance = Ledger(), random.Random(seed)
    for left in range(kills, -1, -1):
        async with server_of(place) as server:
            await _look(server, ledger)
            if not left:
                break
            before = Counter(ledger.acknowledged)
            writing = [asyncio.create_task(_writing(server, ledger, act)) for act in WRITERS]
            if left % 2:  # the others may come before anything is written
                await _all_written(ledger, before, writing)
            await asyncio.sleep(chance.uniform(0.05, window))
            await server.kill()
            await asyncio.wait(writing)
            ledger.lost += [f"{error!r}" for task in writing if (error := task.exception()) is not None]
    ledger.lost += await _in_audit(place, ledger)
    return ledger


async def _all_written(ledger: Ledger, before: Counter[str], writing: list[asyncio.Task[None]]) -> None:
    """Wait until each kind was written once more than before, or one cannot be."""
    for _ in range(6000):
        if len(ledger.acknowledged - before) == len(WRITERS) or any(one.done() for one in writing):
            return
        await asyncio.sleep(0.01)


async def _writing(server: Served, ledger: Ledger, act: Callable[[Served, Ledger], Awaitable[None]]) -> None:
    while True:
        try:
            await act(server, ledger)
        except (ClientError, OSError):  # the server is gone
            return


async def _save(server: Served, ledger: Ledger) -> None:
    ledger.number += 1
    name, path = f"name {ledger.number}", "/api/workflows/saved"
    status, _, headers = await server.ask("GET", path)
    document = {**workflow("ale"), "name": name}
    if status == 404:
        made = server.ask("POST", "/api/workflows", {**document, "id": "saved"})
        await ledger.write("workflow", name, made)
    else:
        await ledger.write("workflow", name, server.ask("PUT", path, document, **{"If-Match": headers["ETag"]}))


async def _run(server: Served, ledger: Ledger) -> None:
    word = f"ale{len(ledger.runs)}"
    answer, _ = await ledger.write("run", word, server.ask("POST", "/api/prompt", workflow(word)))
    ledger.runs[answer["promptId"]] = word.upper()
    await asyncio.sleep(0.02)


async def _say(server: Served, ledger: Ledger) -> None:
    text = f"message {ledger.number}-{len(ledger.messages)}"
    body = {"messages": [{"role": "user", "content": text}]}
    await ledger.write("message", text, server.ask("POST", f"{_TALK}/messages", body))
    ledger.messages.append(text)


async def _set(server: Served, ledger: Ledger) -> None:
    ledger.number += 1
    value = 1 + ledger.number % 500
    await ledger.write("setting", value, server.ask("POST", _SETTINGS, {_SETTING: value}))


async def _grant(server: Served, ledger: Ledger) -> None:
    for act, state in (("grant", "started"), ("revoke", "needs-review")):
        await ledger.write("grant", state, server.ask("POST", f"/api/plugins/{ASKS}/{act}"))


WRITERS = (_save, _run, _say, _set, _grant)


async def _look(server: Served, ledger: Ledger) -> None:
    """Look for everything that was acknowledged."""
    if "workflow" in ledger.states:
        ledger.look("workflow", (await server.ask("GET", "/api/workflows/saved"))[1].get("name"))
    if "setting" in ledger.states:
        ledger.look("setting", (await server.ask("GET", _SETTINGS))[1].get(_SETTING))
    ledger.look("grant", (await server.ask("GET", f"/api/plugins/{ASKS}"))[1]["state"])
    if ledger.messages:
        found = {one["message"]["content"] for one in (await server.ask("GET", f"{_TALK}/messages"))[1]}
        ledger.lost += [f"message: {text!r} is gone" for text in ledger.messages if text not in found]
    load = Load(server, random.Random(0))
    for run_id, word in ledger.runs.items():
        if (output := await load.output(run_id)) != word:
            ledger.lost.append(f"run {run_id}: {output!r}")
    ledger.runs.clear()  # each was seen to end well


async def _in_audit(place: Path, ledger: Ledger) -> list[str]:
    """Return which decisions have fewer entries in the audit log than were acknowledged, and what is wrong with it."""
    folders = {f"XDG_{name.upper()}_HOME": str(place / name) for name in ("config", "state", "data")}

    async def audit(*words: str) -> tuple[int, bytes]:
        command = (sys.executable, "-m", "tavern_host.cli", "--project", str(place / "project"), "audit", *words)
        pipe = asyncio.subprocess.PIPE
        ran = await asyncio.create_subprocess_exec(*command, stdout=pipe, env={**os.environ, **folders})
        out, _ = await ran.communicate()
        return ran.returncode or 0, out

    code, said = await audit("verify")
    wrong = [f"tavern audit verify: {said.decode()}"] if code else []
    entries = Counter(entry["action"] for entry in json.loads((await audit("tail", "--lines", "1000000", "--json"))[1]))
    found = {"setting": entries["settings.saved"], "grant": entries["plugin.granted"] + entries["plugin.revoked"]}
    return wrong + [
        f"{what}: {count} entries, {ledger.acknowledged[what]} acknowledged"
        for what, count in found.items()
        if count < ledger.acknowledged[what]
    ]


def writes() -> list[Result]:
    """Kill a server often while it writes, and return the count of acknowledged writes that were lost."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = asyncio.run(kill_often(KILLS, SEED, Path(folder)))
    for sentence in ledger.lost:
        print(sentence, file=sys.stderr)
    said = ", ".join(f"{count} × {what}" for what, count in ledger.acknowledged.items())
    of = ledger.acknowledged.total()
    return [
        Result("acknowledged writes that were lost", len(ledger.lost), "writes", of, said, 0, KILLS, 0, limited="value")
    ]
