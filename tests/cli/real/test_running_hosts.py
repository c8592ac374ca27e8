"""What a command about plugins says of the hosts that run for the project, which carry the decision out."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from helpers.command_line import Ran, tavern
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin
from helpers.repetition import Failures
from helpers.serve_process import serving

BROKEN = "\ndef broken(:\n"


async def decide(project: Path, *words: str | Path) -> Ran:
    """Run `tavern plugins …` beside a running host."""
    return await asyncio.to_thread(tavern, "--project", project, "plugins", *words)


async def new_project(tmp_path: Path) -> Path:
    project = tmp_path / "inn"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    return project


async def test_commands_say_what_running_hosts_made(tmp_path: Path) -> None:
    project = await new_project(tmp_path)
    acme = project / "plugins" / "acme"
    async with serving(project, as_json=False) as server:
        with Failures() as failures:
            for code, words, ends, told in (
                ("", "grant", 0, "acme is started"),  # it was added after the start
                ("X = 1", "reload", 1, "acme is needs-review; its code has changed since it was reviewed"),
                ("X = 1", "grant", 0, "acme is started"),
                (BROKEN, "grant", 1, "acme is started; plugins/acme/__init__.py:2:12: not reloaded, the load before"),
                (BROKEN, "reload", 1, "__init__.py:2:12: not reloaded, the load before stays in use: loading:"),
                (BROKEN, "disable", 0, "acme is disabled"),
                (BROKEN, "enable", 1, "acme is failed; "),
                ("X = 1", "grant", 0, "acme is started"),
                ("X = 1", "revoke", 0, "acme is needs-review"),
            ):
                with failures.row(f"{words}: {told}"):
                    write_plugin(acme, {"__init__.py": code})
                    ran = await decide(project, words, "acme")
                    whole = (ran.error if ends else ran.out).replace(f"{project}/", "")
                    assert (ran.code, told in whole) == (ends, True), ran
                    assert f"running host (process {server.process.pid}): " in whole
            with failures.row("first-party"):
                ran = await decide(project, "reload", "tavern-llm")
                assert (ran.code, "tavern-llm is first-party: restart the host" in ran.error) == (1, True)
            with failures.row("JSON"):
                write_plugin(project / "plugins" / "looks")
                (answer,) = (await decide(project, "reload", "--json")).json()["hosts"]
                assert answer["process"] == server.process.pid
                assert {p["name"]: p["state"] for p in answer["plugins"]}["looks"] == "started"
        said = (await server.stop(signal.SIGKILL))[1].splitlines()  # it is not waited for
        ran = await decide(project, "disable", "looks")
        assert (ran.code, ran.out) == (0, "looks is disabled. No host runs for this project.\n")
    assert "acme is started" in said
    assert any(line.startswith("acme is disabled; the operator has disabled it") for line in said)
    ran = await decide(project, "reload")
    assert (ran.code, ran.out) == (0, "No host runs for this project: there is nothing to reload.\n")


async def test_a_plugin_being_written_reloads_itself(tmp_path: Path) -> None:
    project = await new_project(tmp_path)
    outside, inside = tmp_path / "brew", project / "plugins" / "ale"
    for folder in (outside, inside):
        write_plugin(folder, {"__init__.py": GREETS_IN_ITS_OWN_WAY}, **INTERCEPTING)
    dev = ["--dev", str(outside), "--dev", str(inside)]
    async with serving(project, before=dev, as_json=False) as server:
        assert server.process.stderr is not None
        for folder in (outside, inside):
            for code, told in (
                (GREETS_IN_ITS_OWN_WAY + "X = 1\n", "is started\n"),
                (GREETS_IN_ITS_OWN_WAY + BROKEN, "the load before stays in use"),
                (GREETS_IN_ITS_OWN_WAY, "is started\n"),
            ):
                written = tmp_path / "written"
                written.write_text(code)
                written.replace(folder / "__init__.py")  # at once: half of it would be reloaded as well
                async with asyncio.timeout(60):
                    line = (await server.process.stderr.readline()).decode()
                assert line.startswith(f"{folder.name} is started"), line
                assert line.endswith(told) or told in line, line
        assert (await decide(project, "reload", "brew")).out.endswith("brew is started\n")
        assert (await decide(project, "reload", "brow")).error.startswith("Error: there is no plugin 'brow'")


async def test_lists_say_how_plugins_stand_at_the_server(tmp_path: Path) -> None:
    project = await new_project(tmp_path)
    write_plugin(project / "plugins" / "acme", {"__init__.py": "X = 1"})
    await decide(project, "grant", "acme")
    async with serving(project) as server:
        told = f"As the server at {server.base} (process {server.process.pid}) has them; --here looks here."
        write_plugin(project / "plugins" / "acme", {"__init__.py": BROKEN})
        with Failures() as failures:
            with failures.row("list"):
                listed = await decide(project, "list", "--json")
                states = {one["name"]: one["state"] for one in listed.json()}
                assert (states["tavern-llm"], states["acme"]) == ("started", "started")
                assert listed.json() == await server.get("/api/plugins")
            with failures.row("show"):
                shown = await decide(project, "show", "acme")
                assert (told in shown.err, shown.out.splitlines()[0]) == (True, "acme (acme 1.0.0) — started")
            for words in ("grant", "disable", "enable"):
                await decide(project, words, "acme")
            with failures.row("what failed there"):
                shown = await decide(project, "show", "acme")
                assert "— failed" in shown.out.splitlines()[0] and "__init__.py:2:12" in shown.out
                listed = await decide(project, "list")
                assert (told in listed.err, "failed" in listed.out) == (True, True)
            for words in (("list", "--here"), ("show", "acme", "--here")):
                with failures.row(words):
                    here = await decide(project, *words)
                    assert told not in here.err and "failed" not in here.out
            with failures.row("other plugins than the server's"):
                here = await asyncio.to_thread(tavern, "--project", project, "--no-plugins", "plugins", "list")
                assert told not in here.err and "discovered" in here.out
