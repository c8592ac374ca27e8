"""What a plugin in a process of its own asks of its host, and what stays where it is."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_files import write_whole

from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.runtime.json_calls import json_call

CODE = """
from tavern_host import *
from tavern_host.contracts.errors import *

@hookimpl
async def tavern_before_execute(request, call, context):
    names = {"call": call, "context": context}
    exec(request.metadata["do"], globals(), names)
    return request.model_copy(update={"metadata": {"result": await names["do"]()}})
"""

PARSER = """
import os
from tavern_host import *
from tavern_tools.api.protocols import ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest

class Bang:
    def __init__(self, options: ParserOptions):
        self.text, self.known = "", options.parameters

    def feed(self, text):
        self.text += text
        if "die" in text:
            os._exit(3)
        return []

    def finish(self):
        head, _, tool = self.text.partition("!")
        text = ParseEvent(kind="text", text=head, offset=0)
        if tool == "raise":
            raise ValueError("boom")
        call = ToolCallRequest(tool_id=tool.strip(), arguments={}, index=1, block=1, request_id="b")
        return [text, ParseEvent(kind="call", call=call)] if tool else [text]

@hookimpl
def tavern_register_action_protocols():
    return [ActionProtocolInfo(name="bang", handler=f"{__name__}:Bang")]
"""


async def done(host: Host, code: str) -> Any:
    """Return what the body of an async function returns in the plugin's process; it knows `context` and `call`."""
    code = "async def do(context=context, call=call):\n" + textwrap.indent(textwrap.dedent(code), "    ")
    asked = RunRequest(workflow=Workflow(name="w"), metadata={"do": code})
    return (await host.services.get(EXECUTION_ENGINE).run(asked)).metadata["result"]


@pytest.fixture(params=["plain", "in a sandbox"])
async def host(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    runtime = {"placement": "process" if request.param == "in a sandbox" else "any"}
    root = tmp_path / "project" / "plugins" / "acme"
    write_whole(root, "acme", CODE, ["tavern_before_execute"], runtime=runtime)
    placement: Any = "process" if request.param == "plain" else None
    async with Host(tmp_path / "project", trust=["acme"], placement=placement) as host:
        assert host.plugin("acme").state is PluginState.STARTED, host.plugin("acme").problems
        yield host


async def test_a_method_is_called_by_name_with_json(host: Host) -> None:
    said = await done(
        host,
        """
        method = context.services.method("workflowManager", "get")
        await context.services.get("workflowManager").list_workflows()
        listed = await context.services.method("workflowManager", "listWorkflows")({}, call)
        return [method.info.permission, dict(method.names), dict(method.parameters), listed]
        """,
    )
    method = json_call(WORKFLOW_MANAGER.interface, "get", lambda name: host.services.get(WORKFLOW_MANAGER))
    assert said == [method.info.permission, dict(method.names), dict(method.parameters), []]
    for name, refusal in (
        ("workflowManager", "there is no method of workflowManager 'gett'; did you mean get?"),
        ("workflowManagr", "there is no service 'workflowManagr'; did you mean workflowManager?"),
    ):
        with pytest.raises(Vetoed, match=refusal.replace("?", r"\?")):
            await done(host, f"context.services.method({name!r}, 'gett')")


async def test_a_blob_has_a_file_for_as_long_as_it_is_used(host: Host) -> None:
    said = await done(
        host,
        """
        import os
        blob = await context.blobs.put(b"much" * 1000)
        path = await context.blobs.path(blob)
        assert await context.blobs.path(blob) == path
        for number in range(100):
            await context.blobs.path(await context.blobs.put(str(number).encode()))
        return [path.parts[:3], len(os.listdir("/proc/self/fd")) < 90, open(await context.blobs.path(blob)).read(9)]
        """,
    )
    assert said == [["/", "proc", "self"], True, "muchmuchm"]
    with pytest.raises(Vetoed, match="cannot wait for the host's answer.*; await context.blobs.hold"):
        await done(host, "context.blobs.has(await context.blobs.put(b'x'))")


async def test_a_parser_is_fed_in_pieces_and_forgotten(tmp_path: Path) -> None:
    hooked = ["tavern_register_action_protocols"]
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", PARSER, hooked)
    async with Host(tmp_path / "project", trust=["acme"], placement="process") as host:
        tools = host.services.get(TOOL_MANAGER)
        parsed = await tools.parse_text("say !tool", protocols=["bang"])
        assert (parsed.text, [call.tool_id for call in parsed.calls]) == ("say ", ["tool"])

        async def pieces(text: str) -> AsyncIterator[str]:
            for sign in text:
                yield sign

        found = [event async for event in tools.parse_stream(pieces("ab!c"), protocols=["bang"])]
        assert [event.call.tool_id for event in found if event.call is not None] == ["c"]
        for text, told in (("!raise", "ValueError: boom"), ("die", "the process of acme has ended")):
            parsed = await tools.parse_text(text, protocols=["bang"])
            assert any(told in warning for warning in parsed.warnings), parsed
            assert parsed.text == text, "the text is there all the same"
        assert (await tools.parse_text("!again", protocols=["bang"])).calls[0].tool_id == "again"


async def test_code_that_the_host_calls_itself_is_refused_with_its_place(tmp_path: Path) -> None:
    code = """
    from tavern_host import *
    from tavern_scripts.api.scripts import ScriptBackendInfo

    class Sandbox: ...

    @hookimpl
    def tavern_register_script_backends():
        return [ScriptBackendInfo(name="mine", handler=Sandbox)]
    """
    root = write_whole(tmp_path / "project" / "plugins" / "acme", "acme", code, ["tavern_register_script_backends"])
    async with Host(tmp_path / "project", trust=["acme"], placement="process") as host:
        (problem,) = host.plugin("acme").problems
    assert host.plugin("acme").state is PluginState.FAILED
    assert problem.message.endswith("the host calls the code of a ScriptBackendInfo in its own process")
    assert (problem.hint, problem.file, problem.line) == (
        "run acme in the host's process",
        str(root / "__init__.py"),
        7,
    )
