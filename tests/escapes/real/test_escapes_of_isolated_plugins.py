"""What no design within one process holds comes to nothing from a plugin in a process of its own: each escape that
`docs/security.md` lists, in a sandbox and without one."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from escape_scene import acme_plugin, module_of, vault_plugin
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.events import Event
from tavern_host.contracts.plugins import PluginState
from tavern_tools.api.toolcalls import ToolCallRequest
from tests.escapes.test_escapes_docs import documented
from tests.isolation.attempts import attempt, attempted, write_attempting

HERE = Path(__file__).parents[1]

LOOKS = '''
import re

SECRET = "tavern-sec[r]et-[0-9a-f]{16}"
"""What it looks like; the pattern itself does not."""

def is_theirs(thing):
    """Whether this is an object of the host's, or of the plugin with the secret."""
    kind = type(thing)
    return kind.__name__ in ("Vault", "Host", "PluginManager", "ServiceRegistry", "LlmService", "ViewHandle")

def view(context):
    return context.services.get("workflowManager")

def in_memory():
    """How often a secret is in the memory of this process."""
    found = 0
    with open("/proc/self/mem", "rb") as memory:
        for line in open("/proc/self/maps"):
            ends, rights, *_ = line.split()
            if rights.startswith("rw"):
                first, last = (int(end, 16) for end in ends.split("-"))
                try:
                    memory.seek(first)
                    found += len(re.findall(SECRET.encode(), memory.read(last - first)))
                except (OSError, OverflowError, ValueError):
                    pass
    return found
'''

SECRET = f"tavern-secret-{secrets.token_hex(8)}"
"""Is in the host's memory, and in its folder."""

ATTEMPTS = {
    "test_a_closure_leads_to_the_provider": "return reach(view(context).get, closures, wanted=is_theirs)",
    "test_a_coroutine_leads_to_the_provider": """
        call = view(context).get("tale")
        found = reach(call, frames, closures, attributes, wanted=is_theirs)
        call.close()
        return found
    """,
    "test_an_async_generator_leads_to_the_provider": """
        from tavern_llm.api.llm import ChatMessage, LlmRequest
        stream = context.services.get("llm").stream(LlmRequest(messages=[ChatMessage(role="user", content="hi")]))
        return reach(stream, frames, closures, attributes, wanted=is_theirs)
    """,
    "test_a_traceback_leads_to_the_provider": """
        try:
            await view(context).get("broken")
        except InvalidInput as error:
            return reach(error, frames, closures, attributes, wanted=is_theirs)
    """,
    "test_a_frame_leads_to_the_host": """
        frame, seen = sys._getframe(), []
        while frame is not None:
            seen.extend(frame.f_locals.values())
            frame = frame.f_back
        return reach(seen, attributes, closures, wanted=is_theirs)
    """,
    "test_a_task_leads_to_what_it_works_on": """
        found = [list(frames(task.get_coro())) for task in asyncio.all_tasks()]
        return [each for each in found if any(isinstance(one, str) and re.search(SECRET, one) for one in each)]
    """,
    "test_the_garbage_collector_leads_to_everything": "return [each for each in gc.get_objects() if is_theirs(each)]",
    "test_modules_lead_to_other_plugins": "return 'tavern_plugins.vault' in sys.modules",
    "test_subclasses_lead_to_the_views_of_others": """
        kinds = [kind for kind in object.__subclasses__() if kind.__name__ == "WorkflowManagerView"]
        assert kinds
        saved = []
        for kind in kinds:
            try:
                saved.append(await kind.save("mine", Workflow(name="Mine")))
            except PermissionDenied:
                pass
        return saved
    """,
    "test_private_attributes_lead_to_the_kernel": """
        return reach([context, *vars(context).values()], attributes, closures, wanted=is_theirs)
    """,
    "test_ctypes_reads_any_memory": """
        thing = object()
        assert ctypes.cast(id(thing), ctypes.py_object).value is thing
        return in_memory()
    """,
}
"""By the test that shows it within one process: what an isolated plugin does instead, which must come to nothing."""

KEEPS = """
@hookimpl
async def tavern_before_tool_call(request, call):
    KEPT["call"] = call, sys._getframe()
"""

Row = Callable[[Host, str], Awaitable[None]]
ROWS: dict[str, Row] = {}
"""By the same names: what has to be seen in the host, too."""


def row(function: Row) -> Row:
    """Put a function on that list."""
    ROWS[function.__name__.replace("nothing_comes_of_", "test_")] = function
    return function


# --- changing what others use ------------------------------------------------------------------------


@row
async def nothing_comes_of_a_type_can_be_changed_past_its_guard(host: Host, placement: str) -> None:
    code = """
        KEPT["names"] = []
        def spy(self, name):
            KEPT["names"].append(name)
            return object.__getattribute__(self, name)
        type.__setattr__(type(view(context)), "__getattribute__", spy)
        view(context).get
        return KEPT["names"].pop()
    """
    assert await attempt(host, code) == "'get'", "it reads along in its own"
    await host.services.get(WORKFLOW_MANAGER).get("tale")
    assert await attempt(host, "return KEPT['names']") == "[]"


@row
async def nothing_comes_of_any_function_can_be_replaced(host: Host, placement: str) -> None:
    code = """
        KEPT["read"], KEPT["original"] = [], Path.read_bytes
        def spy(self):
            KEPT["read"].append(self.name)
            return KEPT["original"](self)
        Path.read_bytes = spy
    """
    await attempt(host, code)
    await host.disable("other")
    await host.enable("other")
    assert await attempt(host, "Path.read_bytes = KEPT['original']; return KEPT['read']") == "[]"


@row
async def nothing_comes_of_frozen_is_not_sealed(host: Host, placement: str) -> None:
    before = host.project.name
    assert await attempt(host, "object.__setattr__(context.project, 'name', 'changed')") == "None"
    assert host.project.name == before != "changed"


@row
async def nothing_comes_of_a_text_of_a_derived_type_arrives_as_it_is(host: Host, placement: str) -> None:
    code = """
        class Sly(str):
            def __format__(self, how):
                return "another"
        await view(context).get(Sly("tale"))
    """
    await attempt(host, code)
    arrived = module_of("vault").VAULTS[-1].seen[-1]
    assert type(arrived) is str and f"{arrived}" == "tale"


@row
async def nothing_comes_of_a_plugin_can_publish_in_the_name_of_another(host: Host, placement: str) -> None:
    code = """
        for facility in (context.events, context.events._way, context.audit._way):
            for name, value in list(vars(facility).items()):
                if value == "acme":
                    setattr(facility, name, "vault")
        context.events._check = lambda *_: None
        context.events.publish("vault.opened", {})
        context.events.publish("acme.said", {})
    """
    subscription = host.events.subscribe("vault.opened", "acme.said")
    await attempt(host, code)
    said = await anext(aiter(subscription))
    assert isinstance(said, Event) and (said.type, said.plugin) == ("acme.said", "acme")


@row
async def nothing_comes_of_a_kept_frame_keeps_a_context_good(host: Host, placement: str) -> None:
    asked = ToolCallRequest(tool_id="FileOperator.ListFiles", arguments={})
    assert (await host.services.get(TOOL_MANAGER).call(asked, call=host.call())).status == "done"
    code = """
        from tavern_tools.api.toolcalls import ToolCallRequest
        asked = ToolCallRequest(tool_id="FileOperator.ListFiles", arguments={})
        return await context.services.get("toolManager").call(asked, call=KEPT["call"][0])
    """
    assert "in another's name" in await attempt(host, code), "the call for which it was made is over"


# --- the process and the machine ---------------------------------------------------------------------


@row
async def nothing_comes_of_a_plugin_can_write_grants(host: Host, placement: str) -> None:
    (grants,) = Path(os.environ["TAVERN_STATE_DIR"]).rglob("grants.json")
    code = f"file = Path({str(grants)!r}); file.write_bytes(file.read_bytes()); return 'written'"
    expected = {"process": "FileNotFoundError", "process-without-sandbox": "'written'"}[placement]
    assert (await attempt(host, code)).partition(":")[0] == expected
    assert "acme" in json.loads(grants.read_text())["grants"]


@row
async def nothing_comes_of_a_plugin_can_read_the_environment(host: Host, placement: str) -> None:
    (Path(os.environ["TAVERN_STATE_DIR"]) / "model.key").write_text(SECRET)
    code = f"""
        found = [os.environ.get("MODEL_KEY")]
        for file in (*Path("/proc").glob("[0-9]*/environ"), Path({os.environ["TAVERN_STATE_DIR"]!r}, "model.key")):
            try:
                found += re.findall(SECRET, file.read_text())
            except OSError:
                pass
        return any(found)
    """
    expected = {"process": "False", "process-without-sandbox": "True"}[placement]
    assert await attempt(host, code) == expected


@row
async def nothing_comes_of_a_plugin_can_hold_the_loop(host: Host, placement: str) -> None:
    turns = [0]

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    counting = asyncio.create_task(count())
    assert await attempt(host, "time.sleep(0.2)") == "None"
    counting.cancel()
    assert turns[0] > 100


@row
async def nothing_comes_of_a_plugin_can_end_the_process(host: Host, placement: str) -> None:
    with pytest.raises(Vetoed, match="has ended"):
        await attempt(host, "os._exit(7)")
    assert await attempt(host, "return 1 + 1") == "2"


@row
async def nothing_comes_of_a_thread_goes_on(host: Host, placement: str) -> None:
    code = """
        beat = lambda: [time.sleep(0.001) for _ in iter(int, 1)]
        threading.Thread(target=beat, daemon=False).start()
        KEPT["prepared"] = view(context).get("tale"), view(context).save.__closure__
    """
    assert await attempt(host, code) == "None"
    process = host.plugin("acme").process
    assert process is not None and process.pid is not None
    await host.revoke("acme")
    assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
    await until(lambda: not Path(f"/proc/{process.pid}").exists(), "its process has ended, with all that it kept")


WITH_THE_PROCESS = {
    "test_what_was_taken_from_a_closure_outlives_the_grant",
    "test_a_reading_that_was_prepared_is_carried_out",
}
"""What ends as the thread does, with all that the process keeps."""


@pytest.mark.parametrize("placement", ["process", "process-without-sandbox"])
async def test_each_escape_comes_to_nothing(tmp_path: Path, placement: str) -> None:
    assert {*ATTEMPTS, *ROWS, *WITH_THE_PROCESS} == {*documented()}, "one is not tried from an isolated plugin"
    plugins = tmp_path / "project" / "plugins"
    more = (HERE / "escape_doors.py").read_text() + LOOKS
    asked = {"services": {"use": ["llm:complete", "toolManager:execute"]}}
    write_attempting(plugins / "acme", more=more, code=KEEPS, hooked=["tavern_before_tool_call"], permissions=asked)
    acme_plugin(plugins, name="other")
    async with Host(tmp_path / "project", plugins=[vault_plugin(tmp_path)], trust=["vault", "other"]) as host:
        if placement != "process":
            await host.place("acme", "process-without-sandbox")
        granted = await host.grant("acme")
        assert granted.state is PluginState.STARTED and granted.placement == placement, granted.problems
        waiting = asyncio.create_task(holding(SECRET))
        with Failures() as failures:
            for name, found in (await attempted(host, ATTEMPTS)).items():
                with failures.row(name):
                    assert found in ("None", "[]", "0", "False")
            for name, each in ROWS.items():  # in the order in which they stand: the last ends the process
                with failures.row(name):
                    await each(host, placement)
        waiting.cancel()


async def holding(words: str) -> None:
    """Wait with a secret among the variables."""
    await asyncio.Event().wait()
