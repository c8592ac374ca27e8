"""The rows of the permission table: for every permission, a plugin that uses it and a way to see that it does.
Permissions of one kind and level share a plugin and a host; of these it has all or none.

The rows are made from the host's own lists of permissions. A hook or service that is added later is in the table by
itself where the ways that are here can try it, and else fails the test that asks for every permission.
"""

from __future__ import annotations

import inspect
import typing
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Any

from documentation.platform import all_permissions, hooks, interfaces
from permission_stage import PUBLISHED, Stage, merged
from pydantic import BaseModel

from tavern_agents.api.agents import AgentRequest
from tavern_agents.api.histories import HistoryExport
from tavern_devtools.api.checks import PLUGIN_CHECKS
from tavern_devtools.api.findings import CheckedPlugin
from tavern_engine.api.clusters import RemoteGroup, RemoteNode, Values
from tavern_engine.api.runs import RUN_STORE, RunEnd, RunEntry
from tavern_host import AGENT_RUNTIME, EXECUTION_ENGINE, LLM, NODE_MANAGER, SETTINGS, TOOL_MANAGER
from tavern_host.contracts.accounts import ACCOUNTS, WorkFilter
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied, PluginFailure, TavernError
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.reviews import ReviewedPlugin
from tavern_host.contracts.services import Level, ServiceInterface, ServiceKey, interface_methods
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.databases import SHARED_DATABASES, SharedDatabases, SqlDatabase
from tavern_importers.api.importers import IMPORT_MANAGER, ForeignFile
from tavern_knowledge.api.knowledge import KnowledgeEntry
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tavern_operations.api.metrics import METRICS
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ProgramPackage, ProgramRequest, ScriptRequest
from tavern_tools.api.projectfiles import PROJECT_FILES, ProjectFiles
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.toolfiles import ToolSource
from tavern_triggers.api.triggers import TRIGGER_MANAGER, Trigger

Tries = Callable[[Stage], Awaitable[bool]]
"""Lets the plugin do what the permission is for, or has it called for that; returns whether it came to pass."""


@dataclass(frozen=True)
class Row:
    """Permissions of one level that a plugin uses together. `asks` is how a manifest asks for them, `code` a plugin
    that does what they allow, all of it or nothing; `refused` are parts of the message about a plugin that does so
    without asking (none: it is admitted, and denied when it acts). `besides` is what else it must ask for, `manifest`
    what else must be said of it."""

    names: tuple[str, ...]
    level: Level
    code: str
    tries: Tries
    asks: dict[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    besides: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    is_folder: bool = False
    without: tuple[str, ...] = ()
    real: bool = False


STARTS_PROCESSES = ("scriptExecution", "scriptTools")
"""Services whose methods start processes: what is for them stands in rows of its own, which are `real`."""
KEEPS_CONTEXT = """
@hookimpl
async def tavern_startup(context):
    CONTEXTS.append(context)
"""
ALL_OTHERS = tuple(entry.name for entry in entry_points(group="tavern_host.plugins"))
"""What a host can do without where only pages are told."""
WITH_PROCESSES = ("tavern-wasm",)
"""What begins processes to find out whether its sandbox holds."""
STARTUP = {"hooks": ["hook:server:host:startup"]}


def rows() -> list[Row]:
    """Return all rows."""
    listed = all_permissions()
    kinds = {kind: [p for p in listed if p.name.partition(":")[0] == kind] for kind in ("hook", "services.use")}
    client = tuple(p.name for p in kinds["hook"] if p.name.startswith("hook:client:"))
    replaced = {f"services.override:{service}": interface for service, interface in interfaces().items()}
    shared = {name: replaced.pop(name) for name in [f"services.override:{SHARED_DATABASES.name}"]}
    single = [_hook(p) for p in kinds["hook"] if p.name not in client]
    real = {name: replaced.pop(name) for name in [f"services.override:{service}" for service in STARTS_PROCESSES]}
    use = [row for p in kinds["services.use"] for row in _uses(p, [*replaced.values()], [*real.values()])]
    return [
        *_together(row for row in single if row is not None),
        *_together(use),
        Row(client, "intercept", "", _granted(client), {"hooks": list(client)}, without=ALL_OTHERS),
        *(_ui(kind, [p.name for p in listed if p.name.startswith(f"ui.{kind}:")]) for kind in _UI),
        _override(replaced),
        replace(_override(shared), without=ALL_OTHERS),
        replace(_override(real), real=True),
        *_beside(),
    ]


def _uses(p: PermissionInfo, usual: list[Any], real: list[Any]) -> Iterator[Row]:
    """Yield rows with a plugin that uses those of these services for which a permission is needed."""
    permission = p.name.partition(":")[2]
    if SHARED_DATABASES.name in p.name:
        yield replace(_use(p.name, p.level, [SharedDatabases], permission), without=ALL_OTHERS)
        return
    for among, is_real in ((usual, False), (real, True)):
        needed = {info.permission for interface in among for info in interface_methods(interface).values()} - {None}
        if permission == "*" or permission in needed:
            yield replace(_use(p.name, p.level, among, permission), real=is_real)


def _together(single: Iterable[Row]) -> list[Row]:
    """Return rows for several permissions each, made of rows for one."""
    groups: dict[Any, list[Row]] = {}
    for row in single:
        everything = row.names == ("services.use:*",)
        groups.setdefault((row.level, row.without, row.real, everything), []).append(row)
    return [_joined(group) for group in groups.values()]


def _joined(group: list[Row]) -> Row:
    async def tries(stage: Stage) -> bool:
        done = {row.names: await row.tries(stage) for row in group}
        assert len(set(done.values())) == 1, done
        return all(done.values())

    first = group[0]
    asks: dict[str, Any] = {}
    for row in group:
        asks = merged(asks, row.asks)
    names, refused = tuple(n for row in group for n in row.names), tuple(r for row in group for r in row.refused)
    code = "".join(dict.fromkeys(row.code for row in group))
    return replace(first, names=names, code=code, tries=tries, asks=asks, refused=refused)


def _beside() -> Iterator[Row]:
    """Yield the rows of permissions that are in no list: patterns, code, and what plugins publish."""
    patterns = []
    for pattern in ("NODE_*", "PLUGINS_CHANGED"):
        for verb, tries in (("subscribe", _subscribes), ("publish", _publishes)):
            trying = _on(tries, pattern.replace("*", "ERROR"))
            asks = {"events": {verb: [pattern]}}
            patterns.append(Row((f"events.{verb}:{pattern}",), "intercept", KEEPS_CONTEXT, trying, asks, (), STARTUP))
    yield from _together(patterns)
    code = "@hookimpl\ndef tavern_startup():\n    CALLS.append('tavern_startup')\n"
    yield Row(("code:sha256",), "intercept", code, _called("tavern_startup"), besides=STARTUP, is_folder=True)
    requires: dict[str, Any] = {"requires": {"plugins": {"pub": ">=1"}}}
    box = _published_box()
    yield Row(
        ("hook:plugin:pub:opened",),
        "intercept",
        "@hookimpl\ndef pub_opened(key):\n    CALLS.append('pub_opened')\n",
        _called("pub_opened", lambda stage: stage.get(_box()).open("key")),
        {"hooks": ["hook:plugin:pub:opened"]},
        ("the hook pub_opened is not declared",),
        manifest=requires,
    )
    for verb, level in (("open", "intercept"), ("knock", "add")):
        row = _use(f"services.use:pub.box:{verb}", typing.cast(Level, level), [box], f"pub.box:{verb}")
        yield replace(row, manifest=requires)
    yield replace(_override({"services.override:pub.box": box}), manifest=requires)


# --- hooks -------------------------------------------------------------------------------------------


def _hook(permission: PermissionInfo) -> Row | None:
    (info,) = [one for one in hooks().values() if one.permission == permission.name]
    name = info.name
    if name not in _TRIGGERS and name not in _DECLARING:
        return None
    answer, tries, without = _DECLARING.get(name) or ("None", _called(name, _TRIGGERS[name]), WITH_PROCESSES)
    code = f"""
from helpers.forwarding import forwarding
from tavern_host import AGENT_RUNTIME, CommandInfo, RouteInfo, ServiceInfo, UiDeclaration

class MyAgents(forwarding(AGENT_RUNTIME)):
    def __init__(self):
        pass
    async def list_agents(self):
        CALLS.append("list_agents")
        return []

@hookimpl
def {name}():
    CALLS.append({name!r})
    return {answer}
"""
    refused, asks = (f"the hook {name} is not declared",), {"hooks": [permission.name]}
    return Row((permission.name,), permission.level, code, tries, asks, refused, without=without)


def _called(name: str, trigger: Callable[[Stage], Awaitable[object]] | None = None) -> Tries:
    """Return whether the plugin is called when what calls the hook is made to."""

    async def tries(stage: Stage) -> bool:
        calls = stage.calls  # of this load of the plugin; what triggers it may load it anew
        if trigger is not None:
            await trigger(stage)
        return name in calls

    return tries


async def _change(stage: Stage) -> SettingsChange:
    """Return a change of a setting that does change it."""
    key = "extensions.tavern-llm.defaultModel"
    values = await stage.get(SETTINGS).values("tavern-llm")
    is_saved = any(value.key == key and value.origin == "operator" for value in values)
    return SettingsChange(plugin="tavern-llm", values={key: None if is_saved else "m"})


async def _save_setting(stage: Stage) -> None:
    await stage.get(SETTINGS).save(await _change(stage))


async def _user(stage: Stage) -> tuple[str, str]:
    """Return the name and the password of a user."""
    accounts, user = stage.get(ACCOUNTS), ("ann", "good evening")
    if not await accounts.list_users():
        await accounts.add_user(*user)
    return user


async def _log_in(stage: Stage) -> None:
    await stage.get(ACCOUNTS).log_in(*await _user(stage))


async def _switch_off_and_on(stage: Stage) -> None:
    await stage.host.disable("acme")
    await stage.host.enable("acme")


async def _declares_ui(stage: Stage) -> bool:
    return "mine" in stage.info.contributions.get("ui menuItem", [])


async def _answers_requests(stage: Stage) -> bool:
    return stage.host.registrations.find("GET", "/api/x/acme/mine")[0] is not None


async def _has_a_command(stage: Stage) -> bool:
    return "acme" in stage.host.registrations.commands


async def _serves_agents(stage: Stage) -> bool:
    stage.calls.clear()
    try:
        await stage.get(AGENT_RUNTIME).list_agents()
    except TavernError:
        return False
    return "list_agents" in stage.calls


SHOUT = ToolCallRequest(tool_id="shout", arguments={"text": "hush"})
SCRIPT = ScriptRequest(code="1", language="python")
SAY = LlmRequest(messages=[ChatMessage(role="user", content="hi")])
GREET = AgentRequest(profile_id="keeper", message="Good evening")
RUN = RunRequest(workflow_id="think", inputs={"messages": []})

_TRIGGERS: dict[str, Callable[[Stage], Awaitable[object]] | None] = {
    "tavern_register_nodes": lambda stage: stage.get(NODE_MANAGER).list_nodes(),
    "tavern_discover_tools": lambda stage: stage.get(TOOL_MANAGER).list_tools(),
    "tavern_register_action_protocols": lambda stage: stage.get(TOOL_MANAGER).parse_text("hello"),
    "tavern_register_prompt_macros": lambda stage: stage.get(AGENT_RUNTIME).run(GREET),
    "tavern_register_importers": lambda stage: stage.get(IMPORT_MANAGER).kinds(),
    "tavern_register_trigger_kinds": lambda stage: stage.get(TRIGGER_MANAGER).kinds(),
    "tavern_register_llm_adapters": lambda stage: stage.get(LLM).complete(SAY),
    "tavern_register_script_backends": lambda stage: stage.get(SCRIPT_EXECUTION).backends(),
    "tavern_collect_figures": lambda stage: stage.get(METRICS).figures(),
    "tavern_review_plugin": lambda stage: stage.host.review(ReviewedPlugin(name="other")),
    "tavern_check_plugin": lambda stage: stage.get(PLUGIN_CHECKS).check(CheckedPlugin(name="other", root="/nowhere")),
    "tavern_before_register_node": lambda stage: stage.get(NODE_MANAGER).list_nodes(),
    "tavern_before_register_tool": lambda stage: stage.get(TOOL_MANAGER).list_tools(),
    "tavern_before_execute": lambda stage: stage.get(EXECUTION_ENGINE).run(RUN),
    "tavern_after_execute": lambda stage: stage.get(EXECUTION_ENGINE).run(RUN),
    "tavern_before_tool_call": lambda stage: stage.get(TOOL_MANAGER).call(SHOUT),
    "tavern_after_tool_call": lambda stage: stage.get(TOOL_MANAGER).call(SHOUT),
    "tavern_before_llm_request": lambda stage: stage.get(LLM).complete(SAY),
    "tavern_after_llm_response": lambda stage: stage.get(LLM).complete(SAY),
    "tavern_before_save_settings": _save_setting,
    "tavern_on_login": _log_in,
    "tavern_settle_work": lambda stage: stage.get(ACCOUNTS).stop_work(WorkFilter(kind="user", name="ann")),
    "tavern_startup": None,
    "tavern_shutdown": _switch_off_and_on,
}
"""How what calls each hook is made to call it."""
_SERVICE = "[ServiceInfo(service='agentRuntime', handler=f'{__name__}:MyAgents')]"
_MENU_ITEM = "[UiDeclaration(kind='menuItem', target='mine', title='Mine')]"
_ROUTE = "[RouteInfo(method='GET', path='/api/x/acme/mine', handler=f'{__name__}:MyAgents')]"
_COMMAND = "[CommandInfo(name='acme', help='Mine.', handler=f'{__name__}:MyAgents')]"
_DECLARING: dict[str, tuple[str, Tries, tuple[str, ...]]] = {
    "tavern_register_services": (_SERVICE, _serves_agents, ("tavern-agents",)),
    "tavern_declare_ui": (_MENU_ITEM, _declares_ui, ()),
    "tavern_register_routes": (_ROUTE, _answers_requests, ()),
    "tavern_register_commands": (_COMMAND, _has_a_command, ()),
}
"""What hooks that declare something answer, how that is seen, and what must not be there meanwhile."""


# --- what only pages do ------------------------------------------------------------------------------


_UI: dict[str, Level] = {"inject": "add", "wrap": "intercept", "override": "override"}


def _granted(names: Iterable[str]) -> Tries:
    """Return whether pages are told that the plugin runs with these permissions."""

    async def tries(stage: Stage) -> bool:
        told = await stage.told()
        granted = {one["name"] for one in told["permissions"] if one["granted"]}
        return told["state"] == "started" and granted >= set(names)

    return tries


def _ui(kind: str, names: list[str]) -> Row:
    if kind == "inject":
        names = [*names, "ui.inject:sidebar:panel:header[nodes]"]
    targets = [name.partition(":")[2] for name in names]
    declared = {"inject": "outlet"}.get(kind, kind)
    code = f"""
from tavern_host import UiDeclaration

@hookimpl
def tavern_declare_ui():
    return [UiDeclaration(kind={declared!r}, target=target, export="Mine") for target in {targets!r}]
"""

    async def tries(stage: Stage) -> bool:
        told = await stage.told()
        contributed = set(told.get("contributions", {}).get(f"ui {declared}", []))
        assert contributed in (set(), set(targets))
        assert not contributed or await _granted(names)(stage)
        return bool(contributed)

    refused = tuple(f"{declared} on {target!r} is not declared" for target in targets)
    besides = {"hooks": ["hook:server:ui:declare"]}
    return Row(tuple(names), _UI[kind], code, tries, {"ui": {kind: targets}}, refused, besides, without=ALL_OTHERS)


# --- services ----------------------------------------------------------------------------------------


def _override(replaced: dict[str, type[ServiceInterface]]) -> Row:
    """Return a row with overrides that note each call and hand it on; the keys are the permissions."""
    services = [interface.service_name for interface in replaced.values()]
    code = f"""
import importlib
from helpers.forwarding import forwarding
from tavern_host import ServiceInfo, ServiceKey
from documentation.platform import interfaces

class Noting:
    def __init__(self, original):
        self.original = original
    def __getattr__(self, name):
        CALLS.append(name)
        return getattr(self.original, name)

def note(self, original):
    self.original = Noting(original)

SERVICES = {services!r}
for number, service in enumerate(SERVICES):
    interface = interfaces().get(service) or importlib.import_module("tavern_plugins.pub.api").Box
    globals()[f"Mine{{number}}"] = type("Mine", (forwarding(ServiceKey(interface)),), {{"__init__": note}})

@hookimpl
def tavern_override_services():
    return [ServiceInfo(service=name, handler=f"{{__name__}}:Mine{{n}}") for n, name in enumerate(SERVICES)]
"""

    async def tries(stage: Stage) -> bool:
        called = {}
        for interface in replaced.values():
            stage.calls.clear()
            await _call_all(stage, stage.get(ServiceKey(interface)), interface, only=None)
            called[interface.service_name] = bool(stage.calls)
        assert len(set(called.values())) == 1, called
        return all(called.values())

    refused = ("the hook tavern_override_services is not declared",)
    return Row(tuple(replaced), "override", code, tries, {"services": {"override": services}}, refused)


def _use(name: str, level: Level, among: list[type[ServiceInterface]], permission: str) -> Row:
    """Return a row with a plugin that calls every method for which the permission is needed."""
    only = None if permission == "*" else permission

    async def tries(stage: Stage) -> bool:
        done = []
        for interface in among:
            needed = {info.permission for info in interface_methods(interface).values()} - {None}
            if needed and (only is None or only in needed):
                view = stage.view(interface.service_name)
                done.append(await _call_all(stage, view, interface, only=only or "*"))
        assert done and len(set(done)) == 1
        return done[0]

    asks = {"services": {"use": [permission]}}
    return Row((name,), level, KEEPS_CONTEXT, _unless_denied(tries), asks, besides=STARTUP)


def _unless_denied(tries: Tries) -> Tries:
    async def tries_and_may_be_denied(stage: Stage) -> bool:
        try:
            return await tries(stage)
        except PermissionDenied:
            return False

    return tries_and_may_be_denied


async def _call_all(stage: Stage, view: Any, interface: type[ServiceInterface], *, only: str | None) -> bool:
    """Call the acting methods that need a permission (`*`: any; None: the first method, whatever it is). Return whether
    they were carried out; raises what is no denial."""
    methods = interface_methods(interface)
    names = [n for n, info in methods.items() if info.permission is not None and only in ("*", info.permission)]
    allowed = []
    for name in names or list(methods)[:1]:
        arguments = await _arguments(stage, interface, name)
        named = _NAMED.get(f"{interface.service_name}.{name}", {})
        try:
            result = getattr(view, name)(*arguments, **named)
            await (anext(aiter(result), None) if hasattr(result, "__aiter__") else result)
        except PermissionDenied as error:
            is_own = f"acme may not call {interface.service_name}.{name}: " in error.message
            assert is_own or "acme may not call " in error.message  # what it calls in turn needs its own permission
            allowed.append(not is_own)
        except (Conflict, InvalidInput, NotFound, PluginFailure):
            if f"{interface.service_name}.{name}" not in _ASKED_FOR_NOTHING:
                raise
            allowed.append(True)
        else:
            allowed.append(True)
    assert len(set(allowed)) == 1, dict(zip(names, allowed, strict=False))
    return allowed[0]


async def _arguments(stage: Stage, interface: type[ServiceInterface], method: str) -> list[Any]:
    """Return arguments with which a method does what it is for; where none are written here, the simplest."""
    name = f"{interface.service_name}.{method}"
    if name == "executionEngine.interrupt":
        return [await stage.get(EXECUTION_ENGINE).submit(RUN)]
    if name == "executionEngine.resume":
        return [await _interrupted(stage)]
    if name == "executionEngine.rerun":
        return [(await stage.get(EXECUTION_ENGINE).run(RUN)).id]
    if name == "runStore.accept":
        stage.kept = await _entry(stage)
        return [stage.kept]
    if name in ("runStore.append", "runStore.update"):
        return [WORKER, stage.kept.id, b"" if method == "append" else RunEnd(status=RunStatus.COMPLETE)]
    if name in ("runStore.delete", "runStore.interrupt", "runStore.set_stealable"):
        return [*([WORKER] if method == "set_stealable" else []), stage.kept.id]
    if name == "accounts.log_in":
        return list(await _user(stage))
    if name == "scriptExecution.install":
        return [ProgramPackage(registry="npm", package="../etc")]  # that is no package: nothing is fetched
    if name == "scriptExecution.converse":
        return [ProgramRequest(argv=["/bin/echo", "hello"]), _nothing()]
    if name == "settings.save":
        return [await _change(stage)]
    if interface is ProjectFiles:
        await stage.get(PROJECT_FILES).write_file("kept.txt", "a")
    if name in _ARGUMENTS:
        return _ARGUMENTS[name]
    hints = typing.get_type_hints(getattr(interface, method))
    parameters = list(inspect.signature(getattr(interface, method)).parameters.values())[1:]
    return [_simplest(hints[p.name]) for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]


async def _interrupted(stage: Stage) -> str:
    """Return the id of a run that was interrupted."""
    engine = stage.get(EXECUTION_ENGINE)
    run_id = await engine.submit(RUN)
    await engine.interrupt(run_id)
    assert (await engine.wait(run_id)).status is RunStatus.INTERRUPTED
    return run_id


async def _entry(stage: Stage) -> RunEntry:
    """Return a run that may be kept."""
    return RunEntry(
        id=f"run_{uuid.uuid4().hex}",
        request=RUN,
        workflow=await stage.get(RUN_STORE).put(b"{}"),
        call=CallContext(principal=Principal(kind="user", id="operator")),
        submitted_at=datetime.now(UTC),
    )


async def _nothing() -> AsyncIterator[bytes]:
    """Yield nothing."""
    return
    yield b""


def _simplest(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        needed = {n: f.annotation for n, f in annotation.model_fields.items() if f.is_required()}
        return annotation(**{name: _simplest(each) for name, each in needed.items()})
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)[0]
    if type(None) in typing.get_args(annotation):
        return None
    return {str: "x", int: 1, bool: True}.get(annotation) or (typing.get_origin(annotation) or annotation)()


WORKER = "worker-of-the-table"
REMOTE = RemoteNode(number=0, source=0, config=Values(), inputs=Values())
NOW = datetime.now(UTC)
EMPTY_HISTORY = HistoryExport(id="x", created_at=NOW, changed_at=NOW, active="main", branches=[], messages=[])
MADE = ToolSource(text='{"id": "text:made", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}')
_ARGUMENTS: dict[str, list[Any]] = {
    "sharedDatabases.begin": [SqlDatabase(name="x", file="", migrations=[])],
    "plugins.grant": ["other"],
    "plugins.revoke": ["other"],
    "plugins.enable": ["other"],
    "plugins.disable": ["other"],
    "plugins.place": ["other", "in-process"],
    "plugins.reload": ["other"],
    "settings.options": ["tavern-llm"],
    "settings.values": ["tavern-llm"],
    "audit.record": ["acme.tried"],
    "workflowManager.save": ["made", Workflow(name="Made")],
    "workflowManager.name_revision": ["none", 1, "x"],
    "triggerManager.save": ["made", Trigger(name="Made", kind="webhook", workflow="think")],
    "importManager.import_file": [ForeignFile(name="x.json", content=b'{"nodes": []}')],
    "executionEngine.submit": [RUN],
    "executionEngine.run": [RUN],
    "toolManager.call": [SHOUT],
    "toolManager.call_text": ["hello"],
    "toolManager.call_outputs": [{"text": "hello"}],
    "toolManager.call_all": [[SHOUT]],
    "scriptExecution.run": [SCRIPT],
    "scriptExecution.stream": [SCRIPT],
    "scriptTools.execute_python_script": ["none.py"],
    "scriptTools.execute_nodejs_script": ["none.mjs"],
    "scriptTools.execute_code": ["python", "1"],
    "toolManager.expand": ["hello"],
    "toolFiles.try_out": ["made", MADE, {"text": "hello"}],
    "toolFiles.save": ["made", MADE],
    "toolFiles.delete": ["made"],
    "toolManager.decide": ["none", "refuse"],
    "settings.of_tool": ["tavern-llm", "none"],
    "systemTools.describe_tool": ["shout"],
    "projectFiles.read_file": ["kept.txt"],
    "projectFiles.read_blob": ["kept.txt"],
    "projectFiles.write_blob": ["kept.txt", Blob(hash="0" * 64, media_type="text/plain", length=1)],
    "projectFiles.delete_file": ["kept.txt"],
    "projectFiles.apply_edit": ["kept.txt", "a", "b"],
    "llm.complete": [SAY],
    "llm.stream": [SAY],
    "agentProfiles.get": ["keeper"],
    "agentRuntime.run": [GREET],
    "agentRuntime.start": [GREET],
    "agentRuntime.ask": ["keeper", "Good evening"],
    "nodeManager.act": ["core:RandomNumber", "reroll"],
    "runStore.claim": [WORKER, 60.0],
    "nodeCluster.run": [RemoteGroup(pass_id="none", sources=(), nodes=(REMOTE,))],
    "nodeCluster.release": ["none"],
    "runStore.renew": [WORKER, [], 60.0],
    "runStore.steal": [WORKER, 60.0],
    "runStore.put": [b"{}"],
    "chatHistory.import_history": [EMPTY_HISTORY],
    "chatHistory.rename_history": ["x", "x"],
    "knowledgeBase.write": ["none"],
    "knowledgeBase.import_base": ["x", b'{"entries": {}}'],
    "knowledgeBase.put": ["none", [KnowledgeEntry(id="a")]],
}
_ASKED_FOR_NOTHING = {
    f"{service}.{method}"
    for service, methods in {
        "accounts": "add_user remove_user set_role set_password make_token end_sessions set_member remove_member "
        "begin_openid finish_openid sessions identity stop_work",
        "agentProfiles": "save",
        "agentRuntime": "send interrupt pause resume change_memory recall remember read_result replay get_run wait "
        "trace memory recording",
        "assistant": "propose_patch apply_patch undo_patch",
        "characters": "import_card import_chat import_preset begin export_card export_chat get_card greeting "
        "save_card save_picture",
        "chatHistory": "edit swipe activate fork fork_history rename_branch rename_history delete_branch "
        "import_history load get_history load_branch children tree export_history",
        "executionEngine": "output get show wait",
        "plugins": "trace",
        "knowledgeBase": "header list_entries get put write delete export_base",
        "scriptExecution": "install",
        "llm": "embed",  # the scripted adapter cannot
        "projectFiles": "write_blob",
        "runStore": "get batches contents content",
        "panelManager": "get check show preview save delete",
        "sceneManager": "create start stop say publish read_world update_world get_run wait",
        "scriptTools": "execute_python_script execute_nodejs_script",
        "systemTools": "stream_read task_status task_result task_cancel request_user_interaction",
        "triggerManager": "get enable disable delete fire times",
        "toolManager": "read_stream task cancel_task decide",
        "workflowManager": "move delete save_draft discard_draft name_revision",
    }.items()
    for method in methods.split()
}
"""Methods that are asked about what there is not, such as a task: to say so they must be reached."""
_NAMED: dict[str, dict[str, Any]] = {
    "sharedDatabases.begin": {"writes": True},
    "sharedDatabases.end": {"commit": True},
    "nodeManager.act": {"inputs": {}, "config": {}},
    "scriptExecution.execute": {"code": "1", "language": "python"},
    "chatHistory.edit": {"head": "msg_0"},
    "chatHistory.swipe": {"head": "msg_0"},
    "knowledgeBase.write": {"base": "none"},
    "knowledgeBase.import_base": {"replace": True},
    "runStore.accept": {"worker": WORKER, "lease": 60.0},
    "runStore.set_stealable": {"waits": False},
    "runStore.prune": {"max_age": 86400.0, "max_bytes": 10**9},
}


def _box() -> ServiceKey[Any]:
    return ServiceKey(_published_box())


def _published_box() -> Any:
    """Return the interface that the plugin `pub` publishes, made from the same source."""
    namespace: dict[str, Any] = {"__name__": "published"}
    exec(compile(PUBLISHED, "published", "exec", dont_inherit=True), namespace)
    return namespace["Box"]


# --- events ------------------------------------------------------------------------------------------


def _on(tries: Callable[[Stage, str], Awaitable[bool]], type: str) -> Tries:
    return _unless_denied(lambda stage: tries(stage, type))


async def _subscribes(stage: Stage, type: str) -> bool:
    subscription = stage.context.events.subscribe(type)
    stage.host.events.publish(type, {"told": True})
    await subscription.close()
    return [event.payload async for event in subscription if isinstance(event, Event)] == [{"told": True}]


async def _publishes(stage: Stage, type: str) -> bool:
    heard = stage.host.events.subscribe(type)
    try:
        stage.context.events.publish(type, {"told": True})
    finally:
        await heard.close()
        events = [event async for event in heard if isinstance(event, Event)]
    return [(event.plugin, event.payload) for event in events] == [("acme", {"told": True})]
