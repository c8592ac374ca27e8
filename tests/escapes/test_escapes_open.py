"""What no design within one process holds: each test shows that it works today, and its first sentence stands in
`docs/security.md`, which names the test."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from pathlib import Path
from typing import Any

import pytest
from escape_doors import attributes, closures, frames, reach
from escape_scene import ACME, SECRET, acme_plugin, module_of, scene
from helpers.folder_plugins import write_plugin

from tavern_host import LLM, NODE_MANAGER, TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tavern_tools.api.toolcalls import ToolCallRequest

SAVE = ["workflowManager:save"]
MINE = Workflow(name="Mine")


# --- from a view to what is behind it ----------------------------------------------------------------


async def test_a_closure_leads_to_the_provider(tmp_path: Path) -> None:
    """`__closure__` of a view's method leads to the provider, past every permission."""
    async with scene(tmp_path) as on:
        found = reach(on.view.get, closures, wanted=lambda o: o is on.plain)
        assert await found.save("mine", MINE)
        with pytest.raises(PermissionDenied):
            await on.view.save("mine", MINE)


async def test_what_was_taken_from_a_closure_outlives_the_grant(tmp_path: Path) -> None:
    """What a plugin extracted from a closure while it held a view still works after its grant was revoked."""
    async with scene(tmp_path) as on:
        found = reach(on.view.get, closures, wanted=lambda o: o is on.plain)
        await on.host.revoke("acme")
        assert reach(on.view.get, closures, wanted=lambda o: o is on.plain) is None
        assert await found.save("mine", MINE)


async def test_a_coroutine_leads_to_the_provider(tmp_path: Path) -> None:
    """The frame of a call that is not awaited yet (`cr_frame`) holds what it is about to call."""
    async with scene(tmp_path) as on:
        call = on.view.get("tale")
        assert reach(call, frames, closures, wanted=lambda o: o is on.plain) is on.plain
        call.close()


async def test_an_async_generator_leads_to_the_provider(tmp_path: Path) -> None:
    """The frame of a stream (`ag_frame`) holds what it reads from."""
    async with scene(tmp_path, use=["llm:complete"]) as on:
        await on.context.services.get(LLM).models()  # it is made when it is first called
        stream = on.context.services.get(LLM).stream(LlmRequest(messages=[ChatMessage(role="user", content="hi")]))
        found = reach(stream, frames, closures, wanted=lambda o: type(o).__module__.startswith("tavern_llm.service"))
        assert hasattr(found, "_context")


async def test_a_traceback_leads_to_the_provider(tmp_path: Path) -> None:
    """The traceback of an error that a provider raises holds the provider's own variables."""
    async with scene(tmp_path) as on:
        with pytest.raises(InvalidInput) as caught:
            await on.view.get("broken")
        assert reach(caught.value, frames, wanted=lambda o: o is on.plain) is on.plain


async def test_a_frame_leads_to_the_host(tmp_path: Path) -> None:
    """A hook sees who called it (`sys._getframe`), and so the host's own variables."""
    code = """
        import sys
        from tavern_host import hookimpl

        SEEN = []
        CONTEXTS = []

        @hookimpl
        async def tavern_startup(context):
            frame = sys._getframe()
            while frame is not None:
                SEEN.extend(frame.f_locals.values())
                frame = frame.f_back
            CONTEXTS.append(context)
        """
    async with scene(tmp_path, code=code.replace("\n        ", "\n")) as on:
        seen = module_of("acme").SEEN
        assert on.host._manager in seen
        seen.clear()


async def test_a_task_leads_to_what_it_works_on(tmp_path: Path) -> None:
    """`asyncio.all_tasks` shows every task of the process, and the frame of each."""
    async with scene(tmp_path) as on:
        waiting = asyncio.Event()

        async def work(words: str) -> None:
            await waiting.wait()

        task = asyncio.create_task(work(SECRET))
        await asyncio.sleep(0)
        found = [list(frames(task.get_coro())) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert any(SECRET in values for values in found)
        assert on.view is not None
        waiting.set()
        await task


async def test_the_garbage_collector_leads_to_everything(tmp_path: Path) -> None:
    """`gc.get_objects` shows every object of the process, `gc.get_referrers` who holds it."""
    async with scene(tmp_path) as on:
        vaults = [o for o in gc.get_objects() if type(o).__name__ == "Vault"]
        assert on.plain in vaults
        assert any(holder is on.vault.VAULTS for holder in gc.get_referrers(on.plain))


async def test_modules_lead_to_other_plugins(tmp_path: Path) -> None:
    """`sys.modules` shows the modules of the host and of every plugin, with all that is in them."""
    async with scene(tmp_path) as on:
        assert sys.modules["tavern_plugins.vault"].VAULTS[-1] is on.plain


async def test_subclasses_lead_to_the_views_of_others(tmp_path: Path) -> None:
    """`__subclasses__` shows the types of all views, the operator's among them, and each makes a view that works."""
    async with scene(tmp_path) as on:
        operators = type(on.host.services.get(WORKFLOW_MANAGER))
        kinds: list[Any] = type(on.view).__mro__[1].__subclasses__()
        found: Any = next(kind for kind in kinds if kind is operators)
        await found.save("mine", MINE)
        assert str(on.plain.calls[-1].principal) == "user:operator"


async def test_private_attributes_lead_to_the_kernel(tmp_path: Path) -> None:
    """The facilities of a context keep the kernel in attributes that begin with `_`."""
    async with scene(tmp_path) as on:
        found = reach(on.context.services, attributes, wanted=lambda o: o is on.plain)
        assert found is on.plain


async def test_ctypes_reads_any_memory(tmp_path: Path) -> None:
    """`ctypes` reads and writes any memory of the process."""
    async with scene(tmp_path) as on:
        address = int(repr(on.plain).rpartition(" at ")[2].rstrip(">"), 16)
        assert ctypes.cast(address, ctypes.py_object).value is on.plain


# --- changing what others use ------------------------------------------------------------------------


async def test_a_type_can_be_changed_past_its_guard(tmp_path: Path) -> None:
    """`type.__setattr__` changes the types of views past their guard, and so reads along in everybody's views."""
    async with scene(tmp_path) as on:
        base = type(on.view).__mro__[1]
        names: list[str] = []

        def spy(self: Any, name: str) -> Any:
            names.append(name)
            return object.__getattribute__(self, name)

        operators = on.host.services.get(WORKFLOW_MANAGER)
        type.__setattr__(base, "__getattribute__", spy)
        try:
            await operators.get("tale")
        finally:
            type.__delattr__(base, "__getattribute__")
        assert names == ["get"]


async def test_any_function_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any function or class of any module can be replaced, the host's and Python's own too."""
    read: list[str] = []
    original = Path.read_bytes

    def spy(self: Path) -> bytes:
        read.append(self.name)
        return original(self)

    async with scene(tmp_path) as on:
        monkeypatch.setattr(Path, "read_bytes", spy)
        await on.host.revoke("acme")
        assert "grants.json" in read


async def test_frozen_is_not_sealed(tmp_path: Path) -> None:
    """Values that cannot be changed are shared and not copied; `object.__setattr__` changes them for everybody."""
    async with scene(tmp_path) as on:
        before = on.host.project.name
        object.__setattr__(on.context.project, "name", "changed")
        assert before != on.host.project.name == "changed"


async def test_a_text_of_a_derived_type_arrives_as_it_is(tmp_path: Path) -> None:
    """A text, number or other value that cannot be changed arrives as it is, even if its class is the plugin's own."""

    class Sly(str):
        __slots__ = ()

        def __format__(self, how: str) -> str:
            return "another"

    async with scene(tmp_path) as on:
        await on.view.get(Sly("tale"))
        assert f"{on.plain.seen[-1]}" == "another"


async def test_a_plugin_can_publish_in_the_name_of_another(tmp_path: Path) -> None:
    """A plugin that changes the private attributes of its facilities acts in the name of another plugin."""
    async with scene(tmp_path) as on:
        events = on.context.events
        for name, value in vars(events).items():
            if value == "acme":
                setattr(events, name, "vault")
        assert events.publish("vault.opened", {}).plugin == "vault"


KEEPS_FRAMES = """
import sys
from tavern_host import hookimpl

KEPT = []

@hookimpl
def tavern_startup(context):
    KEPT.append(context)

@hookimpl
def tavern_before_tool_call(request, call):
    KEPT.append((call, sys._getframe()))
"""


async def test_a_kept_frame_keeps_a_context_good(tmp_path: Path) -> None:
    """A context that a plugin keeps with the frame in which it got it outlives its call."""
    hooks = ["hook:server:host:startup", "hook:server:tool:before-call"]
    asked = {"hooks": hooks, "services": {"use": ["toolManager:execute"]}}
    folder = write_plugin(tmp_path / "acme_frames", {"__init__.py": KEEPS_FRAMES}, permissions=asked)
    async with Host(tmp_path / "project", plugins=[folder], trust=["acme-frames"]) as host:
        request = ToolCallRequest(tool_id="FileOperator.ListFiles", arguments={})
        await host.services.get(TOOL_MANAGER).call(request, call=host.call())
        context, (kept, _), *_ = sys.modules["tavern_plugins.acme_frames"].KEPT
        assert (await context.services.get(TOOL_MANAGER).call(request, call=kept)).status == "done"


async def test_a_reading_that_was_prepared_is_carried_out(tmp_path: Path) -> None:
    """A reading call that was prepared before the grant was taken back, and awaited after it, is carried out."""
    async with scene(tmp_path) as on:
        prepared = on.context.services.get(TOOL_MANAGER).describe([])
        await on.host.revoke("acme")
        assert isinstance(await prepared, str)


# --- the process and the machine ---------------------------------------------------------------------

GRANTS_ITSELF = """
import json, os, pathlib

file = next(pathlib.Path(os.environ["TAVERN_STATE_DIR"]).rglob("grants.json"))
grants = json.loads(file.read_text())
other = {"source": os.environ["OTHER"], "permissions": [os.environ["ASKED"]]}
grants["grants"]["other"] = grants["grants"]["acme"] | other
file.write_text(json.dumps(grants))
"""


async def test_a_plugin_can_write_grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin has the files of the host's user, the operator's grants and keys among them, and its network."""
    project = tmp_path / "project"
    folders = [acme_plugin(tmp_path, code=ACME + GRANTS_ITSELF), acme_plugin(tmp_path, name="other")]
    before = Host(project, plugins=folders)
    before.link()
    other = before.plugin("other")
    (code,) = [p.name for p in other.permissions if not p.granted]
    monkeypatch.setenv("OTHER", other.source)
    monkeypatch.setenv("ASKED", code)
    async with Host(project, plugins=folders) as host:
        assert host.plugin("other").state is PluginState.NEEDS_REVIEW
        await host.grant("acme")
    async with Host(project, plugins=folders) as host:
        assert host.plugin("other").state is PluginState.STARTED


async def test_a_plugin_can_read_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin reads the environment of the process, where keys of language models may be."""
    monkeypatch.setenv("MODEL_KEY", SECRET)
    async with scene(tmp_path, code=ACME + "\nimport os\nKEY = os.environ['MODEL_KEY']\n"):
        assert module_of("acme").KEY == SECRET


HOLDS = """
import sys
from tavern_host import hookimpl

HELD = []

@hookimpl
def tavern_before_register_node(node):
    before = sys.turns[0]
    HELD.append(all(sys.turns[0] == before for _ in range(1000)))
"""


async def test_a_plugin_can_hold_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `def` hook that computes, or a plugin that takes all memory, holds up everything in the process."""
    hooks = ["hook:server:nodemanager:before-register"]
    turns = [0]
    monkeypatch.setattr(sys, "turns", turns, raising=False)

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    async with scene(tmp_path, code=ACME + HOLDS, hooks=hooks) as on:
        counting = asyncio.create_task(count())
        assert await on.host.services.get(NODE_MANAGER).list_nodes()
        counting.cancel()
        assert turns[0] > 1
        assert set(module_of("acme").HELD) == {True}, "while it computes nothing else has a turn"


THREAD = """
import threading

STOP = threading.Event()
BEATS = threading.Semaphore(0)

def beat():
    while not STOP.wait(0.001):
        BEATS.release()

THREAD = threading.Thread(target=beat, daemon=True)
THREAD.start()
"""


async def test_a_thread_goes_on(tmp_path: Path) -> None:
    """A thread that a plugin started outlives the unloaded plugin; a deadline does not stop it either."""
    async with scene(tmp_path, code=ACME + THREAD) as on:
        module = module_of("acme")
        await on.host.revoke("acme")
        assert on.host.plugin("acme").state is PluginState.NEEDS_REVIEW
        while module.BEATS.acquire(blocking=False):
            pass
        assert await asyncio.to_thread(module.BEATS.acquire, timeout=60)
        module.STOP.set()
        module.THREAD.join()
