"""A child that sends what no honest one does is refused, or ended, and acts in no name but its own."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.plugin_files import write_whole
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import AUDIT, EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import InvalidInput, Vetoed
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_isolation import supervisor
from tests.isolation.attempts import attempt, attempted, write_attempting

MORE = '''
import gc, json
from tavern_host import clock
from tavern_host.contracts.nodes import NodeProgress

CHILD = next(each for each in gc.get_objects() if type(each).__name__ == "Child")
LINK = CHILD._link

def packed(head, *parts):
    return (json.dumps(head).encode(), *parts)

async def ask(name, head, *parts):
    """Send a call as no honest child does; return the answer."""
    return await LINK.call(name, *packed(head, *parts))

def tell(name, head, *parts):
    LINK.notify(name, *packed(head, *parts))

def send(kind, number, *parts, parent=0):
    """Send a frame, whatever this link knows of the number."""
    from tavern_isolation.frames import frame
    for piece in frame(kind, number, parent, parts):
        LINK._transport.write(piece)

class Forged:
    """What a call of the host is answered with, in place of what the plugin says."""
    answer = None

def fail(error):
    raise error

async def aiter_of(answer):
    yield answer
'''

CODE = """
from tavern_isolation import frames

ASKED = CHILD._asked["hook"]

async def hook(head, parts):
    answer = await ASKED(head, parts)
    forged, Forged.answer = Forged.answer, None
    return answer if forged is None else forged(answer)

CHILD._asked["hook"] = hook

@hookimpl
def tavern_override_services():
    from .over import Over
    return [service_info(WORKFLOW_MANAGER, Over)]
"""

OVER = """
from tavern_host import *
from tavern_workflows.api.workflows import WorkflowManager

class Over(ServiceOverride[WorkflowManager]):
    async def list_workflows(self):
        return await self.original.list_workflows()
"""

VAULT = """
from tavern_host import hookimpl

CONTEXTS = []

@hookimpl
async def tavern_startup(context):
    CONTEXTS.append(context)
"""


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(supervisor, "PERIOD", 0.0)  # it is never given up, however often it is ended
    asked = {
        "services": {"override": ["workflowManager"], "use": ["workflowManager:save", "executionEngine:execute"]},
        "events": {"subscribe": ["EXECUTION_STATUS_UPDATE"]},
    }
    acme = tmp_path / "project" / "plugins" / "acme"
    write_attempting(acme, more=MORE, code=CODE, permissions=asked)
    (acme / "over.py").write_text(OVER)
    vault = write_plugin(
        tmp_path / "vault", {"__init__.py": VAULT}, permissions={"hooks": ["hook:server:host:startup"]}
    )
    async with Host(tmp_path / "project", plugins=[vault], trust=["acme", "vault"]) as host:
        info = host.plugin("acme")
        assert info.state is PluginState.STARTED and info.placement == "process", info.problems
        yield host


def starts(host: Host) -> int:
    """How many processes the plugin has had."""
    process = host.plugin("acme").process
    assert process is not None
    return process.starts


# --- calls -------------------------------------------------------------------------------------------

WORKFLOW = 'encode("mine", str), encode(Workflow(name="Mine"), Workflow)'


def saving(call: str, more: str = "") -> str:
    """Return the attempt to save a workflow in the context that an expression gives."""
    return f"""
        head = {{"service": "workflowManager", "method": "save", "streams": {{}}{more}}}
        head["keys"] = ["workflow_id", "workflow", "call"]
        return await ask("service", head, {WORKFLOW}, encode({call}, CallContext | None))
    """


def of(kind: str, id: str) -> str:
    return f'CallContext(principal=Principal(kind="{kind}", id="{id}"))'


OPERATOR = of("user", "operator")

CALLS = {
    "what it was not granted": (
        "return await ask('service', {'service': 'plugins', 'method': 'grant', 'keys': ['name'], 'streams': {}},"
        " b'\"acme\"')",
        "it needs the permission",
    ),
    "no such call": ("return await ask('settings', {})", "a child cannot ask for 'settings'"),
    "no head": ("return await LINK.call('service')", "service: no head"),
    "a head that is none": ("return await LINK.call('service', b'[]')", "service: no head"),
    "a head that is no JSON": ("return await LINK.call('service', b'{')", "Expecting property name"),
    "a service that is none": (
        "return await ask('service', {'service': 'kernel', 'method': 'grant', 'keys': [], 'streams': {}})",
        "there is no kernel.grant",
    ),
    "a method that is private": (
        "return await ask('service', {'service': 'llm', 'method': '__class__', 'keys': [], 'streams': {}})",
        "there is no llm.__class__",
    ),
    "more keys than values": (
        "return await ask('service', {'service': 'workflowManager', 'method': 'get', 'keys': ['a'], 'streams': {}})",
        "workflowManager.get: zip()",
    ),
    "an argument that there is not": (
        "return await ask('service', {'service': 'workflowManager', 'method': 'get', 'keys': ['_x'], 'streams': {}},"
        " b'1')",
        "unexpected keyword argument '_x'",
    ),
    "a value of another type": (
        "return await ask('service', {'service': 'workflowManager', 'method': 'get', 'keys': ['workflow_id'],"
        " 'streams': {}}, b'[1]')",
        "expected str, found list",
    ),
    "a stream for a value": (
        "return await ask('service', {'service': 'workflowManager', 'method': 'get', 'keys': [],"
        " 'streams': {'workflow_id': 1}})",
        "the argument workflow_id is no stream",
    ),
    "an original of nothing": (saving("None", ', "original": 99'), "overrides no workflowManager by the object 99"),
    "an original of another service": (
        "return await ask('service', {'service': 'llm', 'method': 'models', 'original': 1, 'keys': [], 'streams': {}})",
        "overrides no llm by the object 1",
    ),
    "the operator's name": (saving(OPERATOR), "may not use workflowManager.save in another's name"),
    "another plugin's name": (saving(of("plugin", "vault")), "may not use workflowManager.save in another's name"),
    "an agent's name": (saving(of("agent", "kim")), "may not use workflowManager.save in another's name"),
    "the host's name": (saving(of("system", "host")), "may not use workflowManager.save in another's name"),
    "a child of a context that is none": (
        saving('call.model_copy(update={"id": "call_0", "parent_id": "call_1"})'),
        "may not use workflowManager.save in another's name",
    ),
    "the operator's name, by name": (
        f"return await context.services.invoke('workflowManager', 'delete', dict(workflow_id='x'), call={OPERATOR})",
        "may not use workflowManager.delete in another's name",
    ),
    "events that it may not see": (
        "return await ask('subscribe', {'types': ['NODE_PROGRESS'], 'since': None, 'limit': 1})",
        "may not subscribe NODE_PROGRESS events",
    ),
    "all events": (
        "return await ask('subscribe', {'types': [], 'since': None, 'limit': 1})",
        "may not subscribe * events",
    ),
    "a Blob's path": ("return await ask('blobs', {'method': 'path'})", "there is no blobs.path"),
    "a stream that was not lent": ("return await ask('read', {'stream': 1})", "this stream is read already"),
    "a hook": ("return await context.hooks.collect('tavern_register_nodes')", "only the provider of nodeManager may"),
}
"""What it asks for, and what it is answered."""


async def test_calls_that_no_honest_child_makes_are_refused(host: Host) -> None:
    found = await attempted(host, {what: code for what, (code, _) in CALLS.items()})
    with Failures() as failures:
        for what, (_, expected) in CALLS.items():
            with failures.row(what):
                assert expected in found[what] and ":" in found[what], found[what]
    assert starts(host) == 1


async def test_it_knows_nothing_of_other_plugins(host: Host) -> None:
    assert await attempt(host, "return 'vault' in repr(CHILD._hello)") == "False"


# --- notices -----------------------------------------------------------------------------------------


async def test_it_tells_nothing_in_the_name_of_others(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    heard = aiter(host.events.subscribe("vault.opened", "acme.said", "NODE_PROGRESS"))
    code = f"""
        for type in ("vault.opened", "acme.said"):
            event = Event(seq=10**9, type=type, payload={{}}, plugin="vault", time=clock.now())
            LINK.notify("publish", encode(event, Event))
        for action, call in (("acme.first", None), ("acme.second", {OPERATOR}), ("plugin.granted", None)):
            said = {{"action": action, "subject": "vault", "details": {{}}, "secrets": []}}
            tell("audit", said, encode(call, CallContext | None))
        for number in range(100):
            tell("progress", {{"report": number}}, encode(NodeProgress(value=1, maximum=2), NodeProgress))
        context.events.publish("acme.said", {{"last": True}})
        await context.audit.written()
    """
    assert await attempt(host, code) == "None"
    said = [await anext(heard), await anext(heard)]
    assert all(isinstance(each, Event) and each.plugin == "acme" and each.seq < 10**9 for each in said), said
    entries = [each for each in await host.services.get(AUDIT).tail(50) if each.subject == "vault"]
    ours = [each for each in entries if each.action.startswith("acme.")]
    assert [(each.action, each.plugin, str(each.actor)) for each in ours] == [("acme.first", "acme", "plugin:acme")]
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    for part in ("in another's name", "only the host itself does"):
        assert any(part in message for message in errors), (part, errors)
    assert starts(host) == 1


async def test_its_lines_in_the_log_are_its_own(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    line = r"x\nERROR tavern.plugin.vault: forged\x1b[2J\r"
    await attempt(host, f"context.log.info('{line}'); print('{line}', flush=True)")
    await until(lambda: sum("forged" in record.message for record in caplog.records) == 2, "both are in the log")
    said = [record for record in caplog.records if "forged" in record.message]
    assert {record.name for record in said} == {"tavern.plugin.acme"}
    for record in said:
        _, *rest = record.message.split("\n")
        assert all(each.startswith("    ") for each in rest) and "\x1b" not in record.message, record.message


async def test_its_tasks_are_bounded_and_leave_room_for_calls(host: Host) -> None:
    code = """
        for number in range(1_500):
            context.tasks.spawn(asyncio.Event().wait(), name=f"task {number}")
    """
    assert await attempt(host, code) == "None"
    assert len(host.owned("acme")["task"]) == 500
    assert await attempt(host, "return 1 + 1") == "2"


# --- what ends it ------------------------------------------------------------------------------------

ENDS = {
    "the answer to a call that was never made": "send(frames.REPLY, 10**6, b'x')",
    "an item of an answer": "send(frames.ITEM, max(LINK._served), b'x')",
    "an error that is none": "send(frames.ERROR, max(LINK._served), b'{}')",
    "too large an error": "send(frames.ERROR, max(LINK._served), bytes(2_000_000))",
    "a frame of no kind": "LINK._transport.write(frames.HEADER.pack(0, 99, 0, 1, 0))",
    "a notice of no kind": "tell('settings', {})",
    "a level that is no number": """LINK.notify('log', b'{"level": 1e999, "text": ""}')""",
    "an actor of its own": "tell('audit', {'action': 'acme.x', 'actor': 'user:operator'}, b'null')",
    "a report of no form": "tell('report', {'plugin': 'acme', 'message': 'x', 'details': {'line': 'x'}})",
}


async def test_what_breaks_a_rule_ends_its_process_alone(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with Failures() as failures:
        for number, (what, code) in enumerate(ENDS.items(), start=1):
            with failures.row(what):
                with pytest.raises(Vetoed, match="sent a malformed message"):
                    await attempt(host, code)
                assert await attempt(host, "return 1 + 1") == "2" and starts(host) == 1 + number
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


REPLIES = {
    "bytes that are nothing": (r"lambda answer: (b'\xff', answer[1])", "is no wire value"),
    "a value of another type": ("lambda answer: (b'[1]', answer[1])", "is no wire value"),
    "more parts": ("lambda answer: (*answer, b'')", "too many values"),
    "fewer parts": ("lambda answer: answer[:1]", "not enough values"),
    "a stream": ("aiter_of", "a stream came where an answer was expected"),
    "more than a message holds": ("lambda answer: (bytes(70_000_000), b'')", "too many for one message"),
    "an error without end": ("lambda answer: fail(ValueError('x' * 3_000_000))", "ValueError: xxx"),
    "the host's own errors": ("lambda answer: fail(Unauthorized('sign in'))", "sign in"),
}


async def test_answers_that_are_none_deny_what_a_guard_is_asked_for(host: Host) -> None:
    with Failures() as failures:
        for what, (forged, expected) in REPLIES.items():
            with failures.row(what):
                with pytest.raises(Vetoed) as denied:
                    await attempt(host, f"Forged.answer = {forged}")
                assert expected in denied.value.message and len(denied.value.message) < 2_000
    assert starts(host) == 1 and host.plugin("vault").problems == []


# --- what it registers -------------------------------------------------------------------------------

FORGES = """
import tavern_isolation.child.main as main
from tavern_host import RouteInfo

REAL = main.encode

def forged(value, annotation):
    return REAL(forge(value) if isinstance(value, main.Loaded) else value, annotation)

main.encode = forged

def mark(loaded, **marks):
    return loaded.model_copy(update={"options": {name: marks for name in loaded.options}})

def more(loaded, **other):
    first = loaded.hooks[0]
    return loaded.model_copy(update={"hooks": [first, first.model_copy(update={"function": "other", **other})]})

def misnamed(loaded):
    hooks = [one.model_copy(update={"plugin": "vault"}) for one in loaded.hooks]
    return loaded.model_copy(update={"hooks": hooks})

"""

REGISTERS = """
from tavern_host import *
from .more import *

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path=f"/api/x/{__name__.rpartition('.')[2]}/it", handler=f"{__name__}:it")]

def it(request):
    pass
"""

FORGERIES = {
    "marked": ("mark(loaded, specname='tavern_before_execute', tryfirst=True)", ""),
    "wrapping": ("mark(loaded, wrapper=True, hookwrapper=True)", ""),
    "misnamed": ("misnamed(loaded)", ""),
    "ungranted": ("more(loaded, hook='tavern_before_execute', arguments=['request'])", "is not declared"),
    "unknown": ("more(loaded, hook='tavern_before_all')", "there is no hook 'tavern_before_all'"),
}
"""By the plugin's name: what it says that it has, and why it is refused, if it is."""


async def test_it_registers_nothing_that_it_was_not_granted(tmp_path: Path) -> None:
    for name, (forges, _) in FORGERIES.items():
        files = {"__init__.py": REGISTERS, "more.py": f"{FORGES}forge = lambda loaded: {forges}\n"}
        folder = tmp_path / "project" / "plugins" / name
        write_whole(folder, name, files, ["tavern_register_routes"], runtime={"placement": "process"})
    async with Host(tmp_path / "project", trust=[*FORGERIES]) as host:
        with Failures() as failures:
            for name, (_, expected) in FORGERIES.items():
                with failures.row(name):
                    plugin = host.plugin(name)
                    said = " ".join(problem.message for problem in plugin.problems)
                    assert plugin.state is (PluginState.FAILED if expected else PluginState.STARTED), said
                    assert expected in said and bool(said) is bool(expected)
        run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="w")))
        assert run.error is None, "none of them was asked"


async def test_what_it_registered_is_kept_where_no_project_can_bring_it(host: Host, tmp_path: Path) -> None:
    (kept,) = Path(os.environ["TAVERN_STATE_DIR"]).rglob("registered.json")
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert [*(tmp_path / "project").rglob("registered.json")] == []


async def test_it_reports_on_nobody_else_where_it_provides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_attempting(tmp_path / "project" / "plugins" / "acme")
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        assert await attempt(host, "context.hooks.report('tavern-engine', 'it is broken')") == "None"
        assert host.plugin("tavern-engine").problems == []
    assert any("may not report on tavern-engine" in record.message for record in caplog.records)


async def test_a_link_that_it_leaves_is_named_before_the_project_is_opened(tmp_path: Path) -> None:
    write_attempting(tmp_path / "project" / "plugins" / "acme")
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        assert await attempt(host, "os.symlink('/etc/passwd', context.data_dir / 'left')") == "None"
        left = host.project.private / "plugins" / "acme" / "left"
    with pytest.raises(InvalidInput, match=f"{left} is a link that leads out of the project"):
        Host(tmp_path / "project", create=True)
    left.unlink()
    Host(tmp_path / "project", create=True)
