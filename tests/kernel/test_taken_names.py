"""Under a taken name the first-party contribution stays, else the earlier one; the later one is reported, and so is one
whose handler is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from helpers.plugin_files import write_whole
from helpers.repetition import Failures

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.plugins import PluginState
from tavern_llm.api.llm import LLM, ChatMessage, LlmRequest
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

CODE = """
from tavern_host import CommandInfo, NodeDefinition, ToolDefinition, hookimpl
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_llm.api.llm import LlmAdapterInfo, LlmResponse
from tavern_tools.api.macros import PromptMacroInfo
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_tools.api.protocols import ActionProtocolInfo
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.tools import ToolImplementation

WHO, NAME, HERE = "{who}", "{name}", __name__
OUT = dict(text=SlotDefinition(data_flow_type=DataFlowType.STRING))
LIST = ToolImplementation(kind="service", service="plugins", method="list_plugins")

async def fill_in(request, context):
    return WHO

async def nothing(argument, context):
    return []

class Adapter:
    def __init__(self, options):
        pass
    async def complete(self, request, call):
        return LlmResponse(text=WHO, model="m")
    async def close(self):
        pass

class Parser:
    pass

class Provider:
    pass

@hookimpl
def {hook}():
    return [{item}]
"""


class Kind(NamedTuple):
    """A kind of contribution: its hook, what it returns there or its file, a name that a first-party plugin has, one
    that none has, and how to ask whose a name is."""

    hook: str
    item: str
    taken: str | None
    free: str | None
    whose: Callable[[Host, str], Awaitable[Any]]


async def of_protocol(host: Host, name: str) -> str:
    return next(one.description for one in await host.services.get(TOOL_MANAGER).protocols() if one.name == name)


async def of_macro(host: Host, name: str) -> Any:
    return (await host.services.get(TOOL_MANAGER).expand(f"{{{{{{{name}}}}}}}", call=host.call())).value


async def of_adapter(host: Host, name: str) -> str:
    request = LlmRequest(messages=[ChatMessage(role="user", content="?")], model=name)
    return (await host.services.get(LLM).complete(request, call=host.call())).text


async def of_node(host: Host, name: str) -> str:
    return (await host.services.get(NODE_MANAGER).get(name)).display_name


async def of_tool(host: Host, name: str) -> str:
    return (await host.services.get(TOOL_MANAGER).get(name)).description


async def of_message(host: Host, name: str) -> str:
    return host.registrations.messages[name].plugin


async def of_command(host: Host, name: str) -> str:
    return host.registrations.commands[name].plugin


async def of_route(host: Host, name: str) -> str:
    found = host.registrations.find("GET", name)[0]
    return found.plugin if found is not None else ""


async def of_service(host: Host, name: str) -> str:
    return str(host.why(f"service:{name}"))


async def of_workflow(host: Host, name: str) -> Any:
    return (await host.services.get(WORKFLOW_MANAGER).get(name)).workflow.name


async def of_agent(host: Host, name: str) -> Any:
    return (await host.services.get(AGENT_RUNTIME).get(name)).name


REGISTER = "tavern_register_"
KINDS = {
    "protocol": Kind(
        f"{REGISTER}action_protocols",
        'ActionProtocolInfo(name=NAME, handler=f"{HERE}:Parser", description=WHO, openings=["[["])',
        *("tam", "acme-lines", of_protocol),
    ),
    "macro": Kind(
        f"{REGISTER}prompt_macros",
        'PromptMacroInfo(name=NAME, handler=f"{HERE}:fill_in")',
        *("system:available_tools", "acme:macro", of_macro),
    ),
    "adapter": Kind(
        f"{REGISTER}llm_adapters",
        'LlmAdapterInfo(name=NAME, handler=f"{HERE}:Adapter")',
        *("scripted", "acme-model", of_adapter),
    ),
    "node": Kind(
        f"{REGISTER}nodes",
        'NodeDefinition(type=NAME.partition(":")[2], namespace=NAME.partition(":")[0], display_name=WHO, outputs=OUT, '
        'handler=f"{HERE}:nothing")',
        *("core:UpperCase", "acme:Node", of_node),
    ),
    "tool": Kind(
        "tavern_discover_tools",
        "ToolDefinition(id=NAME, description=WHO, implementation=LIST)",
        *("system:get_current_time", "acme:tool", of_tool),
    ),
    "message": Kind(
        f"{REGISTER}routes", 'MessageInfo(type=NAME, handler=f"{HERE}:nothing")', "PROMPT_REQUEST", "ACME", of_message
    ),
    "command": Kind(
        f"{REGISTER}commands",
        'CommandInfo(name=NAME, help=WHO, handler=f"{HERE}:nothing")',
        *("runs list", "acme do", of_command),
    ),
    "route": Kind(
        f"{REGISTER}routes",
        'RouteInfo(method="GET", path=NAME, handler=f"{HERE}:nothing")',
        *("/api/tools", None, of_route),
    ),
    "service": Kind(
        f"{REGISTER}services", 'ServiceInfo(service=NAME, handler=f"{HERE}:Provider")', "llm", None, of_service
    ),
    "workflow": Kind("workflows", "workflows/{name}.json", None, "same", of_workflow),
    "agent": Kind("agents", "agents/{name}.json", None, "same", of_agent),
}


def contribute(parent: Path, plugin: str, kind: Kind, name: str) -> None:
    """Write a plugin that contributes something of a kind under a name."""
    if not kind.hook.startswith("tavern_"):
        about = {"id": name, "name": plugin, "version": "1", "schema_version": "1.0"}
        files = {kind.item.format(name=name): json.dumps({**about, "core_deliberation_workflow_id": "w", "nodes": []})}
        write_whole(parent / plugin, plugin, files, **{kind.hook: {"entry": f"./{kind.hook}"}})
        return
    code = CODE.replace("{who}", plugin).replace("{name}", name).replace("{hook}", kind.hook)
    write_whole(parent / plugin, plugin, code.replace("{item}", kind.item), [kind.hook])


async def granted(host: Host, plugin: str) -> None:
    """Have a running host see a new plugin, and grant it what it asks for."""
    await host.reload()
    if host.plugin(plugin).state is PluginState.NEEDS_REVIEW:
        await host.grant(plugin)


def host_of(root: Path) -> Host:
    (root / "replies.yaml").write_text("- reply: first-party\n")
    models = {
        "scripted": {"adapter": "scripted", "file": str(root / "replies.yaml")},
        "acme-model": {"adapter": "acme-model"},
    }
    return Host(root, settings={"extensions.tavern-llm.models": models})


async def test_no_contribution_takes_a_name_from_a_first_party_plugin(tmp_path: Path) -> None:
    with Failures() as failures:
        for label, kind in KINDS.items():
            if kind.taken is None:
                continue
            root = tmp_path / label
            root.mkdir()
            async with host_of(root) as host:
                with failures.row(label):
                    before = await kind.whose(host, kind.taken)
                    contribute(root / "plugins", "acme", kind, kind.taken)
                    await granted(host, "acme")
                    assert await kind.whose(host, kind.taken) == before
                    assert "acme" not in str(before)
                    assert host.plugin("acme").problems
            async with host_of(root) as host:
                with failures.row(f"{label}, after a restart"):
                    assert await kind.whose(host, kind.taken) == before
                    assert host.plugin("acme").problems


async def test_no_contribution_takes_a_name_from_an_earlier_plugin(tmp_path: Path) -> None:
    with Failures() as failures:
        for label, kind in KINDS.items():
            if kind.free is None:
                continue
            root = tmp_path / label
            root.mkdir()
            async with host_of(root) as host:
                with failures.row(label):
                    contribute(root / "plugins", "zeta", kind, kind.free)
                    await granted(host, "zeta")
                    before = await kind.whose(host, kind.free)
                    assert before == "zeta" or label == "node"
                    contribute(root / "plugins", "acme", kind, kind.free)
                    await granted(host, "acme")
                    assert await kind.whose(host, kind.free) == before
                    assert host.plugin("acme").problems
                    assert not host.plugin("zeta").problems
            async with host_of(root) as host:
                with failures.row(f"{label}, after a restart"):
                    assert await kind.whose(host, kind.free) == before
                    assert host.plugin("acme").problems
                    assert not host.plugin("zeta").problems


async def test_a_plugin_keeps_its_names_when_it_is_granted_again(tmp_path: Path) -> None:
    kind = KINDS["macro"]
    contribute(tmp_path / "plugins", "zeta", kind, "acme:macro")
    contribute(tmp_path / "plugins", "acme", kind, "acme:macro")
    async with host_of(tmp_path) as host:
        for plugin in ("zeta", "acme", "zeta"):
            await host.grant(plugin)
    async with host_of(tmp_path) as host:
        assert await of_macro(host, "acme:macro") == "zeta"


async def test_the_name_of_a_plugin_is_not_taken_either(tmp_path: Path) -> None:
    write_whole(tmp_path / "plugins" / "mine", "tavern-llm", None)
    async with host_of(tmp_path) as host:
        [first, second] = [one for one in host.plugins() if one.name == "tavern-llm"]
        assert (first.first_party, first.state) == (True, PluginState.STARTED)
        assert second.state is PluginState.INVALID
        assert "the name 'tavern-llm' is taken" in str(second.problems[0])


async def test_a_handler_that_is_not_there_is_told_with_its_place(tmp_path: Path) -> None:
    kinds = {label: kind for label, kind in KINDS.items() if "handler=" in kind.item}
    names = {**{label: kind.free for label, kind in kinds.items()}, "route": "/api/x/acme-route/a", "service": "llm"}
    for label, kind in kinds.items():
        misspelt = kind._replace(item=re.sub(r"(HERE}:\w+)", r"\1s", kind.item))
        contribute(tmp_path / "plugins", f"acme-{label}", misspelt, str(names[label]))
    async with host_of(tmp_path) as host:
        with Failures() as failures:
            for label, kind in kinds.items():
                with suppress(Exception):
                    await granted(host, f"acme-{label}")
                    await kind.whose(host, str(names[label]))
                with failures.row(label):
                    right = re.findall(r"HERE}:(\w+)", kind.item)[0]
                    told = f"35: there is no handler 'tavern_plugins.acme_{label}:{right}s' (did you mean {right}?)"
                    assert f"__init__.py:{told}" in " ".join(map(str, host.plugin(f"acme-{label}").problems))
