"""`tavern plugins install`, `upgrade`, `uninstall` and `search`, with real wheels and without a network."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from helpers.command_line import COMMAND, Ran, tavern
from helpers.repetition import Failures
from helpers.serve_process import Serving, serving
from helpers.wheel_maker import acme, plugin_wheel, wheel

import tavern_host
from tavern_host import Host, TavernError
from tavern_host.storage.files import locked
from tavern_host.testing.http import served

BACKEND = """
import shutil

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return shutil.copy("acme-1.0.0-py3-none-any.whl", folder).rpartition("/")[2]
"""
KEY = "extensions.tavern-packages.index"
ABOUT = "/api/x/acme/about"


def packages(operator: Path) -> Path:
    return operator / "state" / "packages"


def contents(operator: Path) -> dict[str, bytes]:
    """Return all files of what is installed, and of what is granted."""
    found = (path for path in (operator / "state").rglob("*") if path.is_file() and path.suffix != ".pyc")
    kept = ("packages", "grants.json", "plugins.json")
    return {str(p): p.read_bytes() for p in found if any(part in kept for part in p.parts) and p.name != ".lock"}


def plugins(project: Path, *words: str, **settings: str) -> Ran:
    """Run `tavern plugins …` with settings of the plugin; forget what it imported, as the end of its process does."""
    options = json.dumps({f"extensions.tavern-packages.{key}": value for key, value in settings.items()})
    with imports_forgotten():
        return tavern("--project", project, "plugins", *words, TAVERN_SETTINGS=options)


@contextlib.contextmanager
def imports_forgotten() -> Iterator[None]:
    """Forget what is imported of packages in the block."""
    places, names = [*sys.path], set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = places
        for name in set(sys.modules) - names:
            if f"{os.sep}packages{os.sep}" in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@contextlib.asynccontextmanager
async def loaded(project: Path, settings: Mapping[str, Any] | None = None) -> AsyncIterator[Mapping[str, Any]]:
    """Give the commands of a host that was made for commands."""
    host = Host(project, third_party=False, settings=settings)
    try:
        await host.load()
        yield host.registrations.commands
    finally:
        await host.stop()


def shown(project: Path, name: str) -> Any:
    return plugins(project, "show", name, "--json").json()


def test_pip_gives_a_plugin_a_folder_of_its_own(project: Path, wheels: Path, operator_folders: Path) -> None:
    file = wheels / "acme-1.0.0-py3-none-any.whl"
    done = plugins(project, "install", str(file), "--grant", "--json", installer="pip").json()

    kept = json.loads((packages(operator_folders) / "packages.json").read_text())["packages"]["acme"]
    folder = packages(operator_folders) / kept["folder"]
    assert (done["changed"], done["package"], kept["dependencies"]) == (True, kept, {"dep-a": "1.0"})
    assert kept["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (folder / "dep_a.py").is_file() and not (folder / "pydantic").exists()
    info = shown(project, "acme")
    assert (info["state"], info["source"], info["firstParty"]) == ("discovered", "package:acme", False)
    assert "plugin.installed" in tavern("--project", project, "audit", "tail").out


def test_nothing_is_imported_of_a_plugin_without_a_grant(project: Path, wheels: Path, tmp_path: Path) -> None:
    code = "raise RuntimeError('imported')\n"
    for name, hook in (("eager", "tavern_before_execute"), ("adding", "tavern_register_nodes")):
        eager = plugin_wheel(tmp_path, name, "1.0.0", code, hook, needs=["dep-a"])
        installed = plugins(project, "install", str(eager))
        assert installed.code == 0 and f"Next: `tavern plugins grant {name}`." in installed.out
        assert "Run the code that was installed with it." in installed.out
        assert shown(project, name)["permissions"][0]["description"] in installed.out

        assert shown(project, name)["state"] == "needs-review"
        listed = plugins(project, "list", "--check", "--json").json()
        assert next(p["state"] for p in listed if p["name"] == name) == "needs-review"
        newer = plugin_wheel(tmp_path, name, "1.1.0", code, hook, needs=["dep-a"])
        assert plugins(project, "upgrade", name, str(newer)).code == 0, "it waits still"
        assert "would be failed" in plugins(project, "upgrade", name, str(eager), "--grant").err


def test_a_person_at_the_terminal_is_asked_before_anything_is_imported(project: Path, wheels: Path) -> None:
    for answer, state in (("n\n", "needs-review"), ("y\n", "discovered")):
        terminal, theirs = pty.openpty()
        words = ("--project", str(project), "plugins", "install", "acme==1.0.0")
        with subprocess.Popen([*COMMAND, *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as asking:
            os.close(theirs)
            seen = b""
            while b"Grant it? [y/N]" not in seen:
                seen += os.read(terminal, 1024)
            assert b"import: Run the code that was installed with it." in seen
            assert b"hook:server:routes:register: Answer HTTP requests" in seen, "what it only adds, too"
            os.write(terminal, answer.encode())
            said = asking.communicate()[0].decode()
        os.close(terminal)
        assert asking.returncode == 0 and "acme 1.0.0 is installed" in said
        assert shown(project, "acme")["state"] == state
        assert plugins(project, "uninstall", "acme").code == 0


async def test_a_package_stands_for_no_other(project: Path, tmp_path: Path) -> None:
    host_folder = Path(tavern_host.__file__).parents[1].as_uri()
    inside = "sly-1.0.0.data/purelib"
    info = f"{inside}/tavern_host-9.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tavern-host\nVersion: 9\n",
        f"{info}/entry_points.txt": "[tavern_host.plugins]\nsly = sly\ntavern-sly = sly\n",
        f"{info}/direct_url.json": json.dumps({"url": host_folder, "dir_info": {"editable": True}}),
        f"{inside}/sly.pth": "import sys; sys.sly = True\n",
        f"{inside}/pydantic/__init__.py": "raise RuntimeError('not this one')\n",
    }
    sly = plugin_wheel(tmp_path, "sly", "1.0.0", files=files)
    assert (await asyncio.to_thread(plugins, project, "install", str(sly), "--grant")).code == 0

    with imports_forgotten():
        async with Host(project) as host:
            assert host.plugin("sly").state == "started"
            seen = {info.name: info for info in Host(project).link()}
    assert not hasattr(sys, "sly")
    assert {info.name for info in seen.values() if info.state == "invalid"} == set()
    assert {name for name, info in seen.items() if not info.first_party} == {"sly"}


async def test_what_does_not_fit_changes_nothing(
    project: Path, wheels: Path, tmp_path: Path, operator_folders: Path
) -> None:
    for one in ("acme-1.0.0", "older-1.0.0"):
        file = wheels / f"{one}-py3-none-any.whl"
        assert (await asyncio.to_thread(plugins, project, "install", str(file), "--grant")).code == 0
    (tmp_path / "torn-1.0-py3-none-any.whl").write_bytes(b"PK")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "plugin.yaml").write_text("name: bare\n")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "pyproject.toml").write_text("")
    made = plugin_wheel
    rows: list[tuple[list[str], str]] = [
        (["install", str(made(tmp_path, "old", needs=["pydantic<2"]))], "tavern-host 0.1.0 needs pydantic>="),
        (["install", str(made(tmp_path, "new", needs=["dep-a>=2"]))], "dep-a==1.0"),
        (["install", str(made(tmp_path, "lost", needs=["no-such-thing"]))], "no-such-thing"),
        (["install", str(wheel(tmp_path, "plain", "1.0", {"plain.py": ""}))], "it has no entry point in the group"),
        (["install", str(wheel(tmp_path, "deep", "1.0", {"deep/in/x.py": ""}, entry="deep = deep.in"))], "at the top"),
        (
            ["install", str(wheel(tmp_path, "empty", "1.0", {"empty/__init__.py": ""}, entry="empty = empty"))],
            "invalid",
        ),
        (["install", str(made(tmp_path, "future", apiVersion=">=9"))], "would be incompatible"),
        (["install", str(made(tmp_path, "tavern-engine"))], "the name 'tavern-engine' is taken"),
        (["install", str(wheel(tmp_path, "json-x", "1.0", {"json/__init__.py": ""}, entry="j = json"))], "'json'"),
        (["install", str(made(tmp_path, "tavern-host"))], "is in the environment of the host"),
        (["install", str(made(tmp_path, "failing", "1.0.0", "1 / 0"))], "would be failed"),
        (["install", str(tmp_path / "torn-1.0-py3-none-any.whl")], "torn"),
        (["install", str(tmp_path / "bare")], "copy it into the `plugins` folder"),
        (["install", str(tmp_path / "source")], "runs its code before anybody has reviewed it"),
        (["install", "./nowhere"], "there is no"),
        (["install", "acme @ git+https://localhost/x"], "give the address of a wheel alone"),
        (["install", "--index-url=x"], "is not a plugin's name"),
        (["install", "http://127.0.0.1:9/acme-1.0-py3-none-any.whl"], "cannot be read"),
        (["install", "http://127.0.0.1:9/acme.zip"], "is not the name of a wheel"),
        (["upgrade", "acme", "acme==2.0.0"], "older 1.0.0 needs dep-a; 1.0 is installed"),
        (["upgrade", "acme", str(acme(tmp_path, "2.1.0"))], "with acme 2.1.0, older could not be used"),
        (["upgrade", "acme", str(acme(tmp_path, "1.3.0", code="1 / 0"))], "ZeroDivisionError"),
        (["upgrade", "acme", "older"], "older is not acme"),
        (["upgrade", "acm"], "did you mean acme"),
        (["uninstall", "acme"], "without acme, older could not be used"),
        (["uninstall", "../acme"], "no plugin '../acme' was installed"),
        (["search", "acme"], "there is no index of plugins"),
    ]
    before = contents(operator_folders)
    async with loaded(project) as commands:
        with Failures() as failures:
            for (command, what, *more), said in rows:
                with failures.row(f"{command} {what}"):
                    flags = {"grant": True, "build": False, "outside_index": False, "purge": False}
                    named = (
                        {"name": what, "what": more[0] if more else None} if command != "install" else {"what": what}
                    )
                    with pytest.raises(TavernError) as refused, imports_forgotten():
                        _ = [output async for output in commands[f"plugins {command}"].call({**flags, **named})]
                    assert said in str(refused.value)
                    assert contents(operator_folders) == before


def test_an_upgrade_that_asks_for_more_is_reviewed(project: Path, operator_folders: Path) -> None:
    left = packages(operator_folders) / "acme" / "0123456789abcdef"
    left.mkdir(parents=True)
    with locked(packages(operator_folders) / ".lock"):
        ran = plugins(project, "uninstall", "acme")
    assert ran.code == 2 and "the plugins are being changed by" in ran.err
    assert plugins(project, "install", "acme==1.0.0", "--grant").code == 0
    assert not left.exists(), "what a kill left is removed by the next command"
    before = contents(operator_folders)

    ran = plugins(project, "upgrade", "acme", "acme==1.2.0")
    assert ran.code == 1 and "1.0.0 stays in use" in ran.err
    assert "See every workflow run before it starts, change its inputs or refuse it." in ran.out
    assert contents(operator_folders) == before

    assert plugins(project, "upgrade", "acme", "acme==1.2.0", "--grant").code == 0
    info = shown(project, "acme")
    assert (info["version"], all(p["granted"] for p in info["permissions"])) == ("1.2.0", True)
    again = plugins(project, "upgrade", "acme", "acme==1.2.0")
    assert again.code == 0 and "there is nothing else to install" in again.out

    file = project / ".tavern" / "plugins" / "acme" / "kept.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("kept")
    for option, is_kept in (([], True), (["--purge"], False)):  # the data of a plugin outlive it until purged
        assert plugins(project, "uninstall", "acme", *option).code == 0
        assert file.exists() is is_kept
        assert plugins(project, "show", "acme").code == 2
        assert plugins(project, "install", "acme==1.0.0").code == 0

    (packages(operator_folders) / "packages.json").write_text('{"packages": {"acme": 1}}')
    assert plugins(project, "list").code == 0
    ran = plugins(project, "uninstall", "acme")
    assert ran.code == 2 and "remove it and install again" in ran.err


def test_the_version_before_comes_back_with_its_grant(project: Path, operator_folders: Path) -> None:
    def state() -> tuple[str, str, list[str], bool]:
        info = shown(project, "acme")
        names = sorted(one["name"] for one in info["permissions"])
        return info["version"], info["state"], names, all(one["granted"] for one in info["permissions"])

    def grants() -> str:
        return "".join(path.read_text() for path in (operator_folders / "state").rglob("grants.json"))

    assert plugins(project, "install", "acme==1.0.0", "--grant").code == 0
    none = plugins(project, "rollback", "acme")
    assert (none.code, none.error) == (2, "Error: no version of acme from before 1.0.0 is kept")
    old, grants_before = state(), grants()
    assert plugins(project, "upgrade", "acme", "acme==1.2.0", "--grant").code == 0
    new, grants_after = state(), grants()
    assert (new[0], len(new[2]) > len(old[2])) == ("1.2.0", True)
    assert plugins(project, "upgrade", "acme", "acme==1.2.0").code == 0  # what is kept is not tidied away

    back = plugins(project, "rollback", "acme")
    assert (back.code, back.out.splitlines()[0]) == (0, "acme 1.0.0 is in use again, with dep-a 1.0."), back
    assert (state(), _without_times(grants())) == (old, _without_times(grants_before))
    again = plugins(project, "rollback", "acme")
    assert again.code == 0
    assert (state(), _without_times(grants())) == (new, _without_times(grants_after))
    downgraded = plugins(project, "upgrade", "acme", "acme==1.1.0")
    assert downgraded.code == 0 and "acme 1.1.0 is downgraded from 1.2.0" in downgraded.out
    assert plugins(project, "upgrade", "acme", "acme==1.1.0").code == 0  # the next command tidies up
    assert len([*packages(operator_folders).glob("acme/*")]) == 2
    assert plugins(project, "uninstall", "acme").code == 0


def _without_times(text: str) -> str:
    return re.sub(r'"[0-9]{4}-[0-9]{2}-[^"]*"', "", text)


def test_what_is_installed_over_an_older_version_is_an_upgrade_if_somebody_says_so(project: Path) -> None:
    assert plugins(project, "install", "acme==1.0.0", "--grant").code == 0
    for answer, version, said in (
        ("n\n", "1.0.0", b"`tavern plugins upgrade acme acme==1.2.0 --grant`"),
        ("y\n", "1.2.0", b""),
    ):
        terminal, theirs = pty.openpty()
        words = ("--project", str(project), "plugins", "install", "acme==1.2.0")
        with subprocess.Popen([*COMMAND, *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as asking:
            os.close(theirs)
            seen = b""
            while b"[y/N]" not in seen:
                seen += os.read(terminal, 1024)
            os.write(terminal, answer.encode())
            asking.communicate()
            with contextlib.suppress(OSError):
                seen += os.read(terminal, 65536)
        os.close(terminal)
        assert b"See every workflow run before it starts, change its inputs or refuse it." in seen
        assert b"acme 1.0.0 is installed. Put 1.2.0 in its place, and grant that? [y/N]" in seen
        assert said in seen
        assert shown(project, "acme")["version"] == version


def test_a_wheel_takes_the_place_of_another_version_where_that_is_said(
    project: Path, wheels: Path, operator_folders: Path
) -> None:
    old, new = (str(wheels / f"acme-{version}-py3-none-any.whl") for version in ("1.0.0", "1.2.0"))
    hook = "hook:server:workflow:before-execute"
    assert plugins(project, "install", old, "--grant").code == 0
    before = contents(operator_folders)
    ran = plugins(project, "install", new)
    offer = f"`tavern plugins upgrade acme {new} --grant` puts 1.2.0 in its place; it asks for {hook} too"
    assert (ran.code, ran.error) == (2, f"Error: acme 1.0.0 is installed: {offer}; nothing was changed")
    assert contents(operator_folders) == before

    ran = plugins(project, "install", new, "--grant")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "acme 1.2.0 is upgraded from 1.0.0, with dep-a 1.0.")
    assert "there is nothing else to install" in plugins(project, "install", new).out
    ran = plugins(project, "install", old)
    assert f"`tavern plugins upgrade acme {old}` puts 1.0.0 in its place; it no longer asks for {hook}" in ran.error
    ran = plugins(project, "install", old, "--grant")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "acme 1.0.0 is downgraded from 1.2.0, with dep-a 1.0.")
    assert plugins(project, "rollback", "acme").out.startswith("acme 1.2.0 is in use again")


def test_a_version_does_not_come_back_where_another_plugin_needs_more(
    project: Path, wheels: Path, tmp_path: Path, operator_folders: Path
) -> None:
    """Its folder is as it was, with what it depends on, and cannot be resolved again."""
    for version in ("1.0.0", "2.0.0"):
        file = str(wheels / f"acme-{version}-py3-none-any.whl")
        assert plugins(project, "install", file, "--grant").code == 0
    other = plugin_wheel(tmp_path, "other", needs=["dep-a>=2"])
    assert plugins(project, "install", str(other), "--grant").code == 0
    before = contents(operator_folders)
    ran = plugins(project, "rollback", "acme")
    assert (ran.code, "with acme 1.0.0" in ran.error) == (2, True)
    assert "other 1.0.0 needs dep-a>=2; 1.0 is installed" in ran.error
    assert contents(operator_folders) == before
    assert plugins(project, "uninstall", "other").code == 0
    assert plugins(project, "rollback", "acme").code == 0


def test_a_source_is_built_where_that_is_asked_for(project: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    backend = 'build-backend = "backend"\nbackend-path = ["."]\nrequires = []\n'
    (source / "pyproject.toml").write_text(f"[build-system]\n{backend}")
    (source / "backend.py").write_text(BACKEND)

    for command, text in (("install", "first"), ("upgrade", "second")):
        plugin_wheel(source, "acme", description=text)
        named = ["acme"] if command == "upgrade" else []
        assert plugins(project, command, *named, str(source), "--build").code == 0
        assert shown(project, "acme")["description"] == text


def test_an_index_is_made_of_wheels(project: Path, wheels: Path, tmp_path: Path) -> None:
    old, new = (str(wheels / f"acme-{version}-py3-none-any.whl") for version in ("1.0.0", "1.1.0"))
    into = tmp_path / "made" / "index.json"
    ran = plugins(project, "index", old, new, "--into", str(into))
    assert ran.out.splitlines() == [f"acme {version} is in {into}." for version in ("1.0.0", "1.1.0")]
    assert plugins(project, "install", "acme", "--grant", index=str(into)).out.startswith("acme 1.1.0 is installed")
    assert plugins(project, "uninstall", "acme").code == 0

    entry, kept = ran_entry(plugins(project, "index", new, "--url", "https://inn.example/w/")), into.read_bytes()
    assert entry["url"] == "https://inn.example/w/acme-1.1.0-py3-none-any.whl" and "path" not in entry
    assert entry["sha256"] == hashlib.sha256(Path(new).read_bytes()).hexdigest()
    assert plugins(project, "index", new, "--into", str(into), "--url", "https://inn.example/w").code == 0
    first, second = json.loads(into.read_text())["plugins"]
    assert (first, second) == (json.loads(kept)["plugins"][0], entry), "one of this version is replaced"

    torn = tmp_path / "torn-1.0-py3-none-any.whl"
    torn.write_bytes(b"PK")
    (tmp_path / "bad.json").write_text("{")
    plain = wheel(tmp_path, "plain", "1.0", {"plain.py": ""})
    rows = {
        (str(torn),): "is no wheel that can be read",
        (str(plain),): "holds no plugin",
        (str(tmp_path / "gone-1-py3-none-any.whl"),): "is no wheel that can be read",
        ("bad.json",): "is not the name of a wheel",
        (new, "--into", str(tmp_path / "bad.json")): "cannot be read",
        (new, "--into", str(torn / "index.json")): "cannot be",
        (new, "--url", "ftp://inn.example"): "is no address",
    }
    with Failures() as failures:
        for words, said in rows.items():
            with failures.row(str(words)):
                ran = plugins(project, "index", *words)
                assert (ran.code, said in ran.err) == (2, True), ran.err


def ran_entry(ran: Ran) -> dict[str, Any]:
    (entry,) = ran.json()["plugins"]
    return dict(entry)


async def test_an_index_is_searched_and_its_hashes_are_checked(
    project: Path, wheels: Path, tmp_path: Path, operator_folders: Path
) -> None:
    def entry(version: str, /, **more: str) -> dict[str, str]:
        name = f"acme-{version}-py3-none-any.whl"
        found = {"name": "acme", "version": version, "summary": "Ropes", "url": f"/{name}", "path": str(wheels / name)}
        return {**found, "sha256": hashlib.sha256((wheels / name).read_bytes()).hexdigest(), **more}

    index = tmp_path / "index.json"
    listed = [entry("1.0.0"), entry("1.1.0"), entry("1.2.0", sha256="0" * 64), entry("2.0.0", version="3.0.0a1")]
    misnamed = {**entry("1.0.0"), "name": "ropes"}
    index.write_text(json.dumps({"plugins": [*listed, misnamed]}))

    async def did(commands: Mapping[str, Any], command: str, **arguments: Any) -> Any:
        flags = {"grant": False, "build": False, "outside_index": False}
        with imports_forgotten():
            return [one async for one in commands[f"plugins {command}"].call({**flags, **arguments})][-1].data

    before = contents(operator_folders)
    async with loaded(project, {KEY: str(index)}) as commands:
        for word in ("ROPES", "cme"):
            found = await did(commands, "search", word=word)
            assert [(one["name"], one["version"]) for one in found][:1] == [("acme", "3.0.0a1")]
        assert await did(commands, "search", word="nothing") == []
        for what, said in [
            ("acme", "its SHA-256 is"),
            ("acme==9", "it has 1.0.0, 1.1.0, 1.2.0, 3.0.0a1"),
            ("older", "the index has no plugin 'older'"),
            ("ropes", "the index calls it ropes"),
        ]:
            with pytest.raises(TavernError, match=re.escape(said)):
                await did(commands, "install", what=what)
        assert contents(operator_folders) == before
    app = web.Application()
    app.router.add_static("/here", index.parent)
    app.router.add_static("/", wheels)
    async with TestServer(app) as server, loaded(project, {KEY: str(server.make_url("/here/index.json"))}) as commands:
        with pytest.raises(TavernError, match="its SHA-256 is"):
            await did(commands, "install", what="acme==1.2.0")
        with pytest.raises(TavernError, match="answers with 404"):
            await did(commands, "install", what=str(server.make_url("/lost-1.0-py3-none-any.whl")))
        assert contents(operator_folders) == before
        assert (await did(commands, "install", what="acme<1.1"))["package"]["version"] == "1.0.0"
        with_token = server.make_url("/acme-1.1.0-py3-none-any.whl").with_user("me").with_password("secret")
        kept = (await did(commands, "upgrade", name="acme", what=f"{with_token}?token=secret"))["package"]["requested"]
        assert kept.endswith("/acme-1.1.0-py3-none-any.whl") and "secret" not in kept
        assert (await did(commands, "upgrade", name="acme", what="acme<1.2"))["changed"] is False
        assert (await did(commands, "install", what="older", outside_index=True))["changed"] is True
        with imports_forgotten():
            async with Host(project, settings={KEY: str(index)}) as host, served(host) as site:
                found = (await (await site.get("/api/packages/index?q=rope")).json())["plugins"]
        assert [(one["name"], one["version"], one.get("installed")) for one in found] == [
            ("acme", "3.0.0a1", "1.1.0"),
            ("ropes", "1.0.0", None),
        ]
        assert all(set(one) <= {"name", "version", "summary", "installed"} for one in found)
        index.write_text("[]")
        with pytest.raises(TavernError, match="cannot be read"):
            await did(commands, "search")


async def test_a_running_host_follows(project: Path, wheels: Path, tmp_path: Path) -> None:
    def run(*words: str) -> Ran:
        return plugins(project, *words)

    async def about(server: Serving) -> Any:
        async with server.session.get(server.base + ABOUT) as answer:
            return await answer.json() if answer.status == 200 else answer.status

    startup = "@hookimpl\ndef tavern_startup():\n    raise RuntimeError('no')\n"
    failing = acme(tmp_path, "1.1.1", "tavern_startup", code=startup)
    assert (await asyncio.to_thread(run, "install", "acme==1.0.0", "--grant")).code == 0
    async with serving(project) as server:
        assert await about(server) == ["1.0.0", 1]

        upgraded = await asyncio.to_thread(run, "upgrade", "acme", "acme==1.1.0")
        assert upgraded.code == 0 and "acme is started" in upgraded.out
        assert await about(server) == ["1.1.0", 1]

        put_back = await asyncio.to_thread(run, "upgrade", "acme", str(failing))
        assert put_back.code == 1 and "1.1.0 is in use again" in put_back.err
        assert await about(server) == ["1.1.0", 1]
        info = await server.get("/api/plugins/acme")
        assert (info["state"], info["version"], info["problems"]) == ("started", "1.1.0", [])

        waiting = await asyncio.to_thread(run, "upgrade", "acme", "acme==2.0.0")
        assert waiting.code == 0 and "pending restart: dep-a was upgraded while the host ran" in waiting.out
        assert await about(server) == ["1.1.0", 1]
        assert (await server.get("/api/plugins/acme"))["pendingRestart"] is True

        purged = await asyncio.to_thread(run, "uninstall", "acme", "--purge")
        assert purged.code == 2 and "stop it, or uninstall without --purge" in purged.err
        removed = await asyncio.to_thread(run, "uninstall", "acme")
        assert removed.code == 0 and "acme is gone" in removed.out
        assert await about(server) == 404

        assert await server.get("/api/packages/index") == {"isSet": False, "plugins": []}
        for body, status, said in [
            ({"what": "acme==9"}, 409, "cannot be installed beside what is there"),
            ({"what": str(failing)}, 400, "is not a plugin's name"),
            ({}, 400, "the body must say `what`"),
            ({"what": "acme==1.0.0"}, 200, "1.0.0"),
        ]:
            async with server.session.post(f"{server.base}/api/packages", json=body) as answer:
                assert answer.status == status and said in await answer.text()
        assert await about(server) == 404, "nobody has decided that it be imported"
        await server.post("/api/plugins/acme/grant", {})
        assert await about(server) == ["1.0.0", 1]
        async with server.session.post(
            f"{server.base}/api/packages/acme/upgrade", json={"what": "acme==1.2.0"}
        ) as asked:
            refused = await asked.json()
        assert (asked.status, [*refused["details"]["missing"]]) == (409, ["acme"])
        granting = {"what": "acme==1.2.0", "grant": True}
        assert (await server.post("/api/packages/acme/upgrade", granting))["before"] == "1.0.0"
        assert [one["version"] for one in await server.get("/api/packages")] == ["1.2.0"]
        assert await about(server) == ["1.2.0", 1]
        await server.delete("/api/packages/acme")
        assert (await about(server), await server.get("/api/packages")) == (404, [])


def test_a_grant_of_before_comes_back_only_where_it_was_and_was_not_revoked(
    project: Path, tmp_path: Path, operator_folders: Path
) -> None:
    def grants() -> int:
        files = (operator_folders / "state").rglob("grants.json")
        return sum("acme" in json.loads(path.read_text())["grants"] for path in files)

    other = tmp_path / "other"
    assert tavern("init", other).code == 0
    assert plugins(project, "install", "acme==1.2.0", "--grant").code == 0
    assert plugins(project, "upgrade", "acme", "acme==1.0.0").code == 0
    assert grants() == 1
    assert plugins(other, "rollback", "acme").code == 0
    assert (grants(), shown(other, "acme")["state"]) == (1, "needs-review")

    assert plugins(project, "grant", "acme").code == 0
    assert plugins(project, "upgrade", "acme", "acme==1.0.0").code == 0
    assert plugins(project, "revoke", "acme").code == 0
    assert plugins(project, "rollback", "acme").code == 0
    assert (grants(), shown(project, "acme")["state"]) == (0, "needs-review")
