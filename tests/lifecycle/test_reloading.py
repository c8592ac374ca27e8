"""Plugins are reloaded while the host runs: what is new is loaded whole, and what is broken costs itself alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.forwarding import overriding
from helpers.repetition import Failures
from helpers.stage import STAGE
from helpers.waiting import until
from lifecycle_maker import HEAD, begin, get, installed, nodes, plugin, problems, run, states, write

from tavern_host import WORKFLOW_MANAGER, Host, clock
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.services import ServiceInterface, ServiceKey

ROUTED = f"""{HEAD}
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path=f"/api/x/NAME/go", handler=f"{{__name__}}:go")]

async def go(request, context):
    return HttpResponse(data="ANSWER")
"""


def routed(answer: str, name: str = "acme", more: str = "") -> str:
    """Return the code of a plugin with a route."""
    return ROUTED.replace("NAME", name).replace("ANSWER", answer) + more


def answering(project: Path, answer: str, name: str = "acme", more: str = "", *hooked: str, **manifest: object) -> Path:
    """Write a plugin with a route."""
    return plugin(project / "plugins", name, routed(answer, name, more), "tavern_register_routes", *hooked, **manifest)


async def ask(host: Host, name: str = "acme") -> object:
    return await get(host, f"/api/x/{name}/go")


def loads(host: Host) -> dict[str, int]:
    """Return which load of each plugin is in use."""
    return {name: id(loaded) for name, loaded in host._manager.active.items()}


# --- what is broken now ---------------------------------------------------------------------------------

WAITS = nodes("""
@node()
async def wait(text: str) -> str:
    await STAGE.wait("node")
    return f"{text}, VERSION"
""")
STARTS = f"{HEAD}\n@hookimpl\nasync def tavern_startup(context):\n    raise RuntimeError('no luck')\n"
PROVIDES = overriding("WORKFLOW_MANAGER", "    def __init__(self):\n        raise RuntimeError('no luck')", head=HEAD)
OVERRIDES = {"permissions": {"services": {"override": ["workflowManager"]}}}
BROKEN: list[tuple[dict[str, str], tuple[str, ...], dict[str, object], str]] = [
    ({"plugin.yaml": "name: [\n"}, (), {}, "plugin.yaml:2:1: not valid YAML"),
    ({"plugin.yaml": ""}, (), {}, "plugin.yaml"),
    ({"__init__.py": "raise RuntimeError('no luck')"}, (), {}, "loading: RuntimeError: no luck"),
    ({"nodes.py": "def broken(:"}, (), {}, "loading: SyntaxError"),
    ({"nodes.py": "import sys; sys.exit(2)"}, (), {}, "tried to end the program (SystemExit: 2)"),
    ({}, (), {"apiVersion": ">=99"}, "it is made for tavern-host >=99"),
    ({}, (), {"requires": {"plugins": {"other": ">=1"}}}, "it requires the plugin other"),
    ({}, (), {"permissions": {"hooks": ["hook:nope"]}}, "hook:nope"),
    ({"__init__.py": STARTS}, ("tavern_startup",), {}, "tavern_startup: RuntimeError: no luck"),
    ({"__init__.py": PROVIDES}, (), OVERRIDES, "loading: RuntimeError: no luck"),
    ({"__init__.py": STARTS}, (), {}, "the hook tavern_startup is not declared"),
]


async def test_a_broken_reload_leaves_the_old_load(project: Path) -> None:
    def whole() -> None:
        plugin(project / "plugins", "acme", WAITS, nodes={"entry": "nodes"})

    whole()
    answering(project, "still there", "other-one")
    async with Host(project, trust=["acme", "other-one"]) as host:
        with Failures() as failures:
            for files, hooked, manifest, told in BROKEN:
                with failures.row(told):
                    STAGE.reset()
                    under_way = await begin(host, "acme:Wait")
                    await STAGE.seen("node").wait()
                    before = loads(host)
                    parts = {"nodes": {"entry": "nodes"}, **manifest}
                    plugin(project / "plugins", "acme", {**WAITS, **files}, *hooked, **parts)
                    assert [p.name for p in await host.reload("acme")] == ["acme"]
                    assert states(host, "acme") == ["started"]
                    assert told in problems(host)[0].replace("not reloaded, the load before stays in use: ", "", 1)
                    assert loads(host) == before
                    STAGE.cue("node").set()
                    assert (await under_way).outputs == {"text": "made, VERSION"}
                    whole()
                    await host.reload("acme")
                    assert (states(host, "acme"), problems(host)) == (["started"], [])
                    await host._manager.lifecycle.drained()
        assert (await run(host, "acme:Wait")).status is RunStatus.COMPLETE


async def test_dependents_unload_with_a_failed_load(project: Path) -> None:
    answering(project, "one")
    plugin(project / "plugins", "user", WAITS, nodes={"entry": "nodes"}, requires={"plugins": {"acme": ">=1"}})
    async with Host(project, trust=["acme", "user"]) as host:
        under_way = await begin(host, "user:Wait")
        await STAGE.seen("node").wait()
        answering(project, "two", more="\nraise RuntimeError('no luck')\n")
        await host.reload("acme")
        assert (states(host, "acme", "user"), await ask(host)) == (["started", "started"], "one")
        STAGE.cue("node").set()
        assert (await under_way).status is RunStatus.COMPLETE
        await host.disable("acme")
        await host.enable("acme")
        assert states(host, "acme", "user") == ["failed", "incompatible"]
        assert problems(host, "user") == ["it requires acme, which is failed (see `tavern plugins show acme`)"]
        await host._manager.lifecycle.drained()
        assert host.owned("acme") == host.owned("user") == {}
        answering(project, "three")
        await host.reload()
        assert (states(host, "acme", "user"), problems(host, "user")) == (["started", "started"], [])


async def test_the_old_version_answers_until_the_new_starts(project: Path) -> None:
    hangs = "\n@hookimpl\nasync def tavern_shutdown():\n    await asyncio.sleep(3600)\n"
    waits = "\n@hookimpl\nasync def tavern_startup():\n    await STAGE.wait('startup')\n"
    answering(project, "one", "acme", hangs, "tavern_shutdown")
    async with Host(project, trust=["acme"]) as host:
        answering(project, "two", "acme", waits, "tavern_startup")
        reading = asyncio.create_task(host.reload("acme"))
        await STAGE.seen("startup").wait()
        assert await ask(host) == "one"
        STAGE.cue("startup").set()
        await reading
        assert await ask(host) == "two"
        await host._manager.lifecycle.drained()
        assert (states(host, "acme"), await ask(host)) == (["started"], "two"), "the shutdown of the old one hangs"
        assert "tavern_shutdown of acme did not end within 5 s" in problems(host)[0]


# --- which are reloaded ----------------------------------------------------------------------------------


async def test_reloading_all_takes_what_is_new_or_changed(project: Path, site: Path) -> None:
    for name in ("same", "changed", "gone"):
        answering(project, "one", name)
    installed(site, "wheel", routed("one", "wheel"), "tavern_register_routes")
    installed(site, "old-wheel", "")
    names = ["same", "changed", "gone", "new", "wheel", "old-wheel", "new-wheel"]
    async with Host(project, trust=names) as host:
        assert await host.reload() == []
        before = loads(host)
        answering(project, "two", "changed")
        answering(project, "two", "new")
        shutil.rmtree(project / "plugins" / "gone")
        installed(site, "wheel", routed("two", "wheel"), "tavern_register_routes")
        installed(site, "new-wheel", routed("two", "new-wheel"), "tavern_register_routes")
        shutil.rmtree(site / "old_wheel-1.0.0.dist-info")
        events = host.events.subscribe("PLUGINS_CHANGED")
        gone = {(name, "gone") for name in ("gone", "old-wheel")}
        started = {(name, "started") for name in ("changed", "new", "wheel", "new-wheel")}
        assert {(p.name, p.state.value) for p in await host.reload()} == gone | started
        await events.close()
        told = {(e.payload["name"], e.payload["state"]) async for e in events}  # type: ignore[union-attr]
        assert told == gone | started
        kept = {name for name, load in loads(host).items() if before.get(name) == load}
        assert kept == set(before) - {"changed", "gone", "wheel", "old-wheel"}
        for name, answer in (("same", "one"), ("changed", "two"), ("new", "two"), ("wheel", "two"), ("gone", None)):
            assert await ask(host, name) == answer, name
        assert await ask(host, "new-wheel") == "two"
        for name in ("gone", "old-wheel"):
            with pytest.raises(NotFound):
                host.plugin(name)
        assert await host.reload() == []


async def test_reloading_all_retries_failed_plugins(project: Path) -> None:
    opens = f"{HEAD}\nif 'open' not in STAGE.log:\n    raise RuntimeError('closed')\n"
    plugin(project / "plugins", "acme", opens)
    guards = f"{HEAD}\n@hookimpl\ndef tavern_before_execute():\n    return None\n"
    plugin(project / "plugins", "guard", guards, "tavern_before_execute")
    answering(project, "one", "off")
    async with Host(project, trust=["acme", "off"]) as host:
        await host.disable("off")
        assert states(host, "acme", "guard", "off") == ["failed", "needs-review", "disabled"]
        STAGE.log.append("open")
        assert [p.name for p in await host.reload()] == ["acme"]
        assert (states(host, "acme"), problems(host)) == (["started"], [])


async def test_a_namesake_loads_when_the_first_is_gone(project: Path) -> None:
    first, second = answering(project, "one"), answering(project, "two", "other")
    for file in ("plugin.yaml", "__init__.py"):
        write(second / file, (second / file).read_text().replace("other", "acme"))
    async with Host(project, trust=["acme"]) as host:
        assert await ask(host) == "one"
        assert [p.state for p in host.plugins() if p.name == "acme"] == ["started", "invalid"]
        shutil.rmtree(first)
        assert [p.name for p in await host.reload()] == ["acme"]
        assert await ask(host) == "two"
        assert [(p.state, p.source) for p in host.plugins() if p.name == "acme"] == [("started", f"folder:{second}")]


async def test_embedded_and_first_party_plugins_are_not_reloaded(project: Path) -> None:
    handed = ModuleType("handed_over")
    handed.__file__ = str(answering(project.parent, "one", "handed-over") / "__init__.py")
    exec(compile(routed("one", "handed-over"), handed.__file__, "exec"), vars(handed))
    sys.modules["handed_over"] = handed
    try:
        async with Host(project, plugins=[handed], trust=["handed-over"]) as host:
            assert await ask(host, "handed-over") == "one"
            with pytest.raises(Conflict, match="handed-over was handed over by the program that the host is part of"):
                await host.reload("handed-over")
            answering(project.parent, "two", "handed-over")
            assert await host.reload() == []
            await host.disable("handed-over")
            await host.enable("handed-over")
            assert await ask(host, "handed-over") == "one"
            with pytest.raises(Conflict, match="tavern-engine is first-party: restart the host to reload it"):
                await host.reload("tavern-engine")
    finally:
        del sys.modules["handed_over"]


# --- what was reviewed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["enable", "grant"])
async def test_a_plugin_comes_back_as_it_is_now(project: Path, site: Path, how: str) -> None:
    def write_both(answer: str, version: str) -> None:
        hooked = ("tavern_register_routes", "tavern_before_execute")
        answering(project, answer, version=version)
        installed(site, "wheel", routed(answer, "wheel"), *hooked, version=version)

    write_both("one", "1.0.0")
    async with Host(project, trust=["acme", *(["wheel"] if how == "enable" else [])]) as host:
        if how == "grant":
            await host.grant("wheel")
        assert await ask(host, "wheel") == "one"
        await host.disable("acme")
        await (host.disable("wheel") if how == "enable" else host.revoke("wheel"))
        write_both("two", "2.0.0")
        await host.enable("acme")
        await getattr(host, how)("wheel")
        for name in ("acme", "wheel"):
            assert (host.plugin(name).version, await ask(host, name)) == ("2.0.0", "two")


# --- installed packages ---------------------------------------------------------------------------------


def package(answer: str) -> dict[str, str]:
    """Return the files of a package whose handlers are in modules of their own."""
    return {
        "__init__.py": routed("unused").replace('{__name__}:go"', '{__name__}.deep.web:go"'),
        "deep/__init__.py": "",
        "deep/web.py": f"{HEAD}from acme.words import WORD\n\nasync def go(request, context):\n"
        "    from acme.deep import late\n    return HttpResponse(data=f'{WORD} {late.WORD}')\n",
        "deep/late.py": f"WORD = '{answer}'\n",
        "words.py": f"WORD = '{answer}'\n",
    }


def modules_of_acme() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.copy().items() if name.split(".")[0] == "acme"}


async def test_every_module_of_a_package_is_reloaded(project: Path, site: Path) -> None:
    installed(site, "acme", package("one"), "tavern_register_routes")
    async with Host(project, trust=["acme"]) as host:
        assert await ask(host) == "one one"
        before = modules_of_acme()
        broken = {**package("two"), "__init__.py": "import acme.extra\nraise RuntimeError('no luck')", "extra.py": ""}
        installed(site, "acme", broken, "tavern_register_routes")
        await host.reload("acme")
        assert (states(host, "acme"), await ask(host), modules_of_acme()) == (["started"], "one one", before)
        for answer in ("three", "four"):
            installed(site, "acme", package(answer), "tavern_register_routes")
            await host.reload("acme")
            assert await ask(host) == f"{answer} {answer}"
        await host.disable("acme")
        await host.enable("acme")
        assert await ask(host) == "four four"


async def test_handlers_of_the_old_version_stay_its_own(project: Path, site: Path) -> None:
    """What the host reaches by name for what is under way is of the old code, if it was imported by then."""

    def write_version(version: str) -> None:
        say = f'\n@node()\nasync def say(text: str) -> str:\n    return f"{{text}}, {version}"\n'
        files = {**WAITS, "nodes.py": WAITS["nodes.py"].replace("VERSION", version) + say}
        installed(site, "acme", files, nodes={"entry": "nodes"})

    write_version("one")
    async with Host(project, trust=["acme"]) as host:
        under_way = await begin(host, "acme:Wait", "acme:Say")
        await STAGE.seen("node").wait()
        old = host._manager.active["acme"].runtime
        write_version("two")
        await host.reload("acme")
        assert [d.type for d in old.collect("tavern_register_nodes")] == ["Wait", "Say"]
        assert old.function("acme.nodes:say") is not sys.modules["acme.nodes"].say
        STAGE.cue("node").set()
        assert (await under_way).outputs == {"text": "made, one, one"}
        assert (await run(host, "acme:Say")).outputs == {"text": "made, two"}


async def test_dependents_are_reloaded_with_a_plugin(project: Path, site: Path) -> None:
    installed(site, "acme", {"__init__.py": "", "words.py": "class Word: pass\n"})
    uses = "from acme.words import Word\nimport acme.words\nIS_ONE = Word is acme.words.Word\n"
    answers = routed("x", "user").replace('data="x"', "data=IS_ONE and Word is __import__('acme').words.Word")
    installed(site, "user", uses + answers, "tavern_register_routes", requires={"plugins": {"acme": ">=1"}})
    async with Host(project, trust=["acme", "user"]) as host:
        assert await ask(host, "user") is True
        installed(site, "acme", {"__init__.py": "", "words.py": "class Word: new = True\n"})
        await host.reload("acme")
        assert states(host, "acme", "user") == ["started", "started"]
        assert await ask(host, "user") is True


# --- what cannot be reloaded yet -------------------------------------------------------------------------


def upgrade(site: Path, name: str) -> float:
    """Install a distribution anew: its files are written. Return when, as the file system says."""
    info = site / f"{name}-1.0.0.dist-info"
    info.mkdir(exist_ok=True)
    for file in ("METADATA", "RECORD"):
        (info / file).unlink(missing_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    (info / "RECORD").write_text(f"{name}-1.0.0.dist-info/METADATA,,\n{name}-1.0.0.dist-info/RECORD,,\n")
    return (info / "METADATA").stat().st_ctime


def needing(site: Path, name: str, needed: str, answer: str, **manifest: object) -> None:
    """Install a plugin whose distribution requires another one."""
    installed(site, name, routed(answer, name), "tavern_register_routes", **manifest)
    metadata = site / f"{name}-1.0.0.dist-info" / "METADATA"
    metadata.write_text(f"{metadata.read_text()}Requires-Dist: {needed}\n")


async def test_an_upgraded_requirement_waits_for_a_restart(project: Path, site: Path) -> None:
    upgrade(site, "library")
    installed(site, "base", routed("one", "base"), "tavern_register_routes")
    needing(site, "acme", "library", "one", requires={"plugins": {"base": ">=1"}})
    names = ["base", "acme"]
    async with Host(project, trust=names) as host:
        before, now = loads(host), clock.file_seconds()
        await until(lambda: upgrade(site, "library") > now)
        needing(site, "acme", "library", "two", requires={"plugins": {"base": ">=1"}})
        installed(site, "base", routed("two", "base"), "tavern_register_routes")
        for wanted in ("acme", None, "base"):
            await host.reload(wanted)
            assert loads(host) == before
        for name in names:
            shown = host.plugin(name)
            assert (shown.state, shown.pending_restart) == ("started", True)
            assert problems(host, name) == [
                "pending restart: library was upgraded while the host ran "
                "(restart the host; until then the loaded version stays in use)"
            ]
            assert await ask(host, name) == "one"
        await host.disable("base")
        assert states(host, *names) == ["disabled", "incompatible"]
    async with Host(project, trust=names) as host:
        await host.enable("base")
        assert not host.plugin("acme").pending_restart
        assert problems(host, "acme") == []


# --- overrides ------------------------------------------------------------------------------------------

LIST = """
    async def list_workflows(self):
        STAGE.log.append("NAME")
        return await self.original.list_workflows()
"""
LOUD = overriding("WORKFLOW_MANAGER", LIST, head=HEAD)


def loud(project: Path, name: str, said: str | None = None) -> None:
    """Write a plugin that overrides a service, and says when it is asked."""
    code = LOUD.replace("NAME", said or name)
    plugin(project / "plugins", name, code, permissions={"services": {"override": ["workflowManager"]}})


async def heard(host: Host) -> list[str]:
    STAGE.log.clear()
    await host.services.get(WORKFLOW_MANAGER).list_workflows()
    return list(STAGE.log)


async def test_overrides_keep_their_order_over_a_reload(project: Path, operator_folders: Path) -> None:
    write(operator_folders / "config" / "host.yaml", "overrides: {workflowManager: [low, high]}\n")
    loud(project, "low")
    loud(project, "high")
    async with Host(project, trust=["low", "high"]) as host:
        assert await heard(host) == ["high", "low"]
        loud(project, "low", "low again")
        await host.reload("low")
        assert await heard(host) == ["high", "low again"]
        await host.disable("high")
        assert await heard(host) == ["low again"]
        await host.enable("high")
        assert await heard(host) == ["high", "low again"]
        assert [layer.plugin for layer in host._manager.services.layers("workflowManager")] == [
            "tavern-workflows",
            "low",
            "high",
        ]


WORD = """
from tavern_host import ServiceInterface, reads

class Word(ServiceInterface, name='acme.word'):
    @reads
    async def word(self) -> str:
        '''Say a word.'''
"""
SIZE = "\n    @reads\n    async def size(self) -> int:\n        '''Return its size.'''\n"
SAYS = f"""{HEAD}
class Says:
    async def word(self): return "WORD"
    async def size(self): return 4

@hookimpl
def tavern_register_services():
    return [ServiceInfo(service="acme.word", handler=f"{{__name__}}:Says")]
"""
LOUDER = f"""{HEAD}
class Louder:
    def __init__(self, original):
        self.original = original
    async def word(self):
        return (await self.original.word()).upper()

@hookimpl
def tavern_override_services():
    return [ServiceInfo(service="acme.word", handler=f"{{__name__}}:Louder")]
"""


async def test_an_override_uses_the_reloaded_service(project: Path) -> None:
    def publish(word: str, contracts: str = WORD) -> None:
        files = {"contracts.py": contracts, "__init__.py": SAYS.replace("WORD", word)}
        services = [{"name": "acme.word", "interface": "contracts:Word"}]
        plugin(project / "plugins", "acme", files, "tavern_register_services", publishes={"services": services})

    key: ServiceKey[Any] = ServiceKey(type("Word", (ServiceInterface,), {"service_name": "acme.word"}))
    publish("one")
    permissions = {"services": {"override": ["acme.word"]}}
    needs = {"plugins": {"acme": ">=1"}}
    plugin(project / "plugins", "louder", LOUDER, permissions=permissions, requires=needs)
    async with Host(project, trust=["acme", "louder"]) as host:
        assert await host.services.get(key).word() == "ONE"
        publish("two")
        await host.reload("acme")
        assert await host.services.get(key).word() == "TWO"
        publish("three", WORD + SIZE)
        await host.reload("acme")
        assert states(host, "acme", "louder") == ["started", "failed"]
        assert "Louder lacks the method size of acme.word" in problems(host, "louder")[0]
        assert await host.services.get(key).word() == "three"


# --- files that cannot be read --------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_unreadable_code_costs_the_plugin(project: Path) -> None:
    folder = answering(project, "one")
    async with Host(project) as host:
        await host.grant("acme")
        (folder / "__init__.py").chmod(0)
        await host.reload("acme")
        assert states(host, "acme") == ["started"]
        assert "__init__.py cannot be read: Permission denied" in problems(host)[0]


async def test_a_folder_being_replaced_comes_back_whole(project: Path) -> None:
    folder = answering(project, "one")
    async with Host(project, trust=["acme"]) as host:
        (folder / "plugin.yaml").rename(folder / "away")
        await host.reload()
        assert (states(host, "acme"), await ask(host)) == (["started"], "one")
        (folder / "away").rename(folder / "plugin.yaml")
        await host.reload()
        assert (states(host, "acme"), problems(host), await ask(host)) == (["started"], [], "one")
