"""Overrides of a service: who is used, what the original's view reaches, and what happens when one goes.

The service is `workflowManager`, provided by the first-party plugin `tavern-workflows`; the overrides are
folder plugins written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import following, until
from plugin_maker import host_with, make_plugin, module_of, said_of

from tavern_engine.api.executions import ExecutionEngine
from tavern_host import EXECUTION_ENGINE, PLUGINS, WORKFLOW_MANAGER, Host, service_info
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WorkflowManager

BASE = "tavern-workflows"

OVERRIDE: dict[str, Any] = {"services": {"override": ["workflowManager"]}}

WHOLE = """\
from tavern_host import WORKFLOW_MANAGER, hookimpl, service_info
from tavern_workflows.api.workflows import WorkflowManager

class Signed(WorkflowManager):
    def __init__(self, context, original):
        self.plugin = context.plugin
        self.original = original
        KEPT["original"] = original
        KEPT["own view"] = context.services.get(WORKFLOW_MANAGER)

    async def list_workflows(self):
        found = await self.original.list_workflows()
        return [w.model_copy(update={"name": f"{w.name} +{self.plugin}"}) for w in found]

    async def get(self, workflow_id):
        return await self.original.get(workflow_id)

    async def parse(self, document):
        return await self.original.parse(document)

    async def check(self, document):
        return await self.original.check(document)

    async def save(self, workflow_id, workflow, *, expected_revision=None, call=None):
        return await self.original.save(workflow_id, workflow, expected_revision=expected_revision, call=call)

KEPT = {}

@hookimpl
def tavern_override_services():
    return [service_info(WORKFLOW_MANAGER, Signed)]
"""
"""A plugin whose override adds its own name to the names of workflows and hands the rest on.

It was written for the first version of the interface and does not have `closure`, which came with the second.
"""

CLOSURE = """
    async def closure(self, workflow):
        found = await self.original.closure(workflow)
        return {f"{key} +{self.plugin}": stored for key, stored in found.items()}
"""
"""The method of the second version, for that class."""


def upper(project: Path, code: str = WHOLE, name: str = "upper", **permissions: Any) -> Path:
    """Write a plugin that overrides the service beside the project."""
    return make_plugin(project.parent, name, code, permissions=permissions or OVERRIDE)


def order(operator_folders: Path, *plugins: str) -> None:
    """Let the operator order the overrides of the service, the last on top."""
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"overrides: {{workflowManager: [{', '.join(plugins)}]}}\n")


async def names(manager: WorkflowManager) -> list[str]:
    """Return the names of all workflows, as this view of the service lists them."""
    return [summary.name for summary in await manager.list_workflows()]


async def stack(host: Host) -> list[str]:
    """Return who provides the service, lowest first."""
    return [layer.plugin for layer in await host.services.get(PLUGINS).service_stack("workflowManager")]


PASSING_ON = """
from tavern_host import ServiceOverride, WORKFLOW_MANAGER, hookimpl, service_info
from tavern_workflows.api.workflows import WorkflowManager

class Base(ServiceOverride[WorkflowManager]):
    async def list_workflows(self):
        found = await self.original.list_workflows()
        return [w.model_copy(update={"name": f"{w.name} +passing"}) for w in found]

class Signed(Base):
    pass

@hookimpl
def tavern_override_services():
    return [service_info(WORKFLOW_MANAGER, Signed)]
"""
"""A plugin whose override writes one method; the base has the others, with whose classes it is derived from again."""


# --- one override ------------------------------------------------------------------------------------


async def test_a_base_passes_on_what_is_not_written(project: Path) -> None:
    folder = upper(project, PASSING_ON, "passing")
    async with host_with(project, folder) as host, Host(project) as without_it:
        assert said_of(host, "passing") == []
        workflows, bare = host.services.get(WORKFLOW_MANAGER), without_it.services.get(WORKFLOW_MANAGER)
        assert await names(workflows) == ["Tale +passing"]
        stored = await workflows.get("tale")
        assert stored == await bare.get("tale")
        assert await workflows.closure(stored.workflow) == await bare.closure(stored.workflow)
        saved = await workflows.save("new", stored.workflow, expected_revision=None, call=host.call())
        assert saved.workflow == stored.workflow
        _, top = await host.services.get(PLUGINS).service_stack("workflowManager")
        assert (top.plugin, top.version) == ("passing", WORKFLOW_MANAGER.version)


async def test_an_override_serves_everybody_through_its_original(project: Path) -> None:
    async with host_with(project, upper(project)) as host, Host(project) as without_it:
        assert said_of(host, "upper") == []
        workflows = host.services.get(WORKFLOW_MANAGER)
        assert await names(workflows) == ["Tale +upper"]
        assert (await workflows.get("tale")).workflow.name == "Tale"
        base, top = await host.services.get(PLUGINS).service_stack("workflowManager")
        assert (base.plugin, base.override, base.permission) == (BASE, False, None)
        assert (top.plugin, top.override, top.permission) == ("upper", True, "services.override:workflowManager")
        assert top.handler == "tavern_plugins.upper:Signed"
        assert list(await workflows.closure(a_group_of("tale"))) == ["tale"], "a later method goes to the original"
        assert list(await module_of("upper").KEPT["original"].closure(a_group_of("tale"))) == ["tale"]
        await workflows.save("second", Workflow(name="Second"), call=host.call())
        assert (project / "workflows" / "second.json").is_file(), "the original needs no permission of the override"
        assert await names(without_it.services.get(WORKFLOW_MANAGER)) == ["Second", "Tale"]


def a_group_of(name: str) -> Workflow:
    """Return a workflow with a group that stands for the workflow of this id."""
    node = {"id": "group", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": name}}
    return Workflow.model_validate({"nodes": [node]})


# --- older versions ----------------------------------------------------------------------------------


LATER = ["closure", "move", "delete", "draft", "save_draft", "discard_draft", "history", "name_revision", "uses"]
LATER += ["search", "layout"]
"""What `workflowManager` has beyond its first version."""


async def test_an_override_leaves_later_methods_to_the_next(project: Path) -> None:
    whole = upper(project, WHOLE.replace("\nKEPT = {}", f"{CLOSURE}\nKEPT = {{}}"), "lower")
    for folder, version, closure in ((upper(project), 1, "tale"), (whole, 2, "tale +lower")):
        async with host_with(project, folder) as host:
            _, top = await host.services.get(PLUGINS).service_stack("workflowManager")
            assert top.version == version
            assert list(await host.services.get(WORKFLOW_MANAGER).closure(a_group_of("tale"))) == [closure]
            told = f"leaves {', '.join(LATER)} to the next provider in the stack"
            facts = host.why("service:workflowManager").facts
            assert any(told in fact for fact in facts) is (version == 1)


async def test_a_sole_provider_has_all_methods(project: Path) -> None:
    code = WHOLE.replace("tavern_override_services", "tavern_register_services").replace("context, original", "context")
    alone = upper(project, code.replace("original", "context"), "alone", hooks=["hook:server:services:register"])
    async with host_with(project, alone, upper(project), without=[BASE]) as host:
        assert said_of(host, "alone") == [f"Signed lacks the method {method} of workflowManager" for method in LATER]
        assert said_of(host, "upper") == ["nobody provides workflowManager, so it cannot be overridden"]


def test_the_methods_decide_a_providers_version() -> None:
    first = ["submit", "run", "get", "wait", "queue", "interrupt"]

    def version(*methods: str) -> int:
        async def method(self: Any) -> None: ...

        plain = type("Plain", (), dict.fromkeys(methods, method))
        inherits = type("Inherits", (ExecutionEngine,), dict.fromkeys(methods, method))
        (found,) = {service_info(EXECUTION_ENGINE, provider).version for provider in (plain, inherits)}
        return found

    second = (*first, "history", "resume", "rerun")
    assert version(*second, "show", "output") == EXECUTION_ENGINE.version == 3
    assert version(*second) == 2
    assert version(*first, "history") == 1
    assert version(*first) == 1
    assert version("run") == 1


# --- what goes ---------------------------------------------------------------------------------------


async def test_an_override_is_used_while_it_is_granted(project: Path) -> None:
    async with host_with(project, upper(project), trust=[]) as host:
        list_workflows = host.services.get(WORKFLOW_MANAGER).list_workflows
        assert [w.name for w in await list_workflows()] == ["Tale"]
        await host.grant("upper")
        views = dict(module_of("upper").KEPT)
        taken_out = [views["original"].get, views["own view"].get]
        assert [w.name for w in await list_workflows()] == ["Tale +upper"]
        await host.revoke("upper")
        assert [w.name for w in await list_workflows()] == ["Tale"]
        assert await stack(host) == [BASE]
        assert host.plugin("upper").state is PluginState.NEEDS_REVIEW
        for get in [views["original"].get, views["own view"].get, *taken_out]:
            with pytest.raises(PermissionDenied, match=r"upper may not call workflowManager\.get"):
                await get("tale")


# --- several -----------------------------------------------------------------------------------------


async def test_the_operator_orders_overrides(project: Path, operator_folders: Path) -> None:
    folders = [upper(project), upper(project, name="lower")]
    for ordered in ([], ["upper"], ["lower", "upper"], ["upper", "lower"]):
        order(operator_folders, *ordered)
        async with host_with(project, *folders) as host:
            complaint = [] if len(ordered) == 2 else [UNORDERED]
            assert said_of(host, "upper") == said_of(host, "lower") == complaint
            used = [] if complaint else ordered
            assert await stack(host) == [BASE, *used]
            assert await names(host.services.get(WORKFLOW_MANAGER)) == [" +".join(["Tale", *used])]


async def test_a_running_host_follows_the_order_of_overrides(project: Path, operator_folders: Path) -> None:
    async with following(host_with(project, upper(project), upper(project, name="lower"))) as host:
        assert said_of(host, "upper") == [UNORDERED]
        view = host.services.get(WORKFLOW_MANAGER)
        for ordered in (["lower", "upper"], ["upper", "lower"], ["upper"]):
            order(operator_folders, *ordered)
            used = ordered if len(ordered) == 2 else []
            await until(lambda used=used: has_stack(host, [BASE, *used]))
            assert await names(view) == [" +".join(["Tale", *used])]
            assert said_of(host, "upper") == ([] if used else [UNORDERED])


async def has_stack(host: Host, expected: list[str]) -> bool:
    return await stack(host) == expected


UNORDERED = (
    "lower and upper both override workflowManager; neither is used "
    "(put them in order in host.yaml: overrides: {workflowManager: [below, above]})"
)


async def test_one_rival_is_used_without_the_other(project: Path) -> None:
    async with host_with(project, upper(project), upper(project, name="lower"), trust=[]) as host:
        await host.grant("upper")
        await host.grant("lower")
        assert await stack(host) == [BASE]
        await host.revoke("lower")
        assert await names(host.services.get(WORKFLOW_MANAGER)) == ["Tale +upper"]
        assert said_of(host, "upper") == []


# --- what is refused ---------------------------------------------------------------------------------


async def test_all_that_does_not_fit_is_told(project: Path) -> None:
    code = """\
from tavern_host import WORKFLOW_MANAGER, hookimpl, service_info

class Broken:
    def __init__(self, context, original):
        pass

    def list_workflows(self):
        return []

    async def get(self):
        pass

    async def parse(self, document, encoding):
        pass

    async def save(self, workflow_id, *, call=None):
        pass

@hookimpl
def tavern_override_services():
    return [service_info(WORKFLOW_MANAGER, Broken)]
"""
    async with host_with(project, upper(project, code, "broken")) as host:
        assert host.plugin("broken").state is PluginState.FAILED
        assert said_of(host, "broken") == [
            "Broken.list_workflows must be an async def",
            "Broken.get must take the parameters workflow_id",
            "Broken.parse must do without the parameters encoding, which a caller may leave out",
            "Broken lacks the method check of workflowManager",
            "Broken.save must take the parameters workflow, expected_revision",
        ]
        assert await names(host.services.get(WORKFLOW_MANAGER)) == ["Tale"]


UNFIT = [
    (
        "save(self, workflow_id, workflow, *, expected_revision=None, call=None):",
        "save(self, workflow_id, workflow, *, expected_revision, call=None):",
        "Signed.save must do without the parameters expected_revision, which a caller may leave out",
    ),
    (
        "get(self, workflow_id):",
        "get(self, *, workflow_id):",
        "Signed.get must take the parameters workflow_id in this order, by position and by name",
    ),
    (
        "save(self, workflow_id, workflow, *",
        "save(self, workflow, workflow_id, *",
        "Signed.save must take the parameters workflow_id, workflow in this order, by position and by name",
    ),
]


async def test_an_override_takes_every_call_of_its_interface(project: Path) -> None:
    assert all(written in WHOLE for written, _, _ in UNFIT)
    codes = [WHOLE.replace(written, instead) for written, instead, _ in UNFIT]
    codes.append(WHOLE.replace("get(self, workflow_id)", "get(self, workflow_id, encoding='utf-8', **more)"))
    folders = [upper(project, code, f"unfit-{number}") for number, code in enumerate(codes)]
    async with host_with(project, *folders) as host:
        said = [said_of(host, folder.name) for folder in folders]
        assert said == [*([complaint] for _, _, complaint in UNFIT), []], "it may take more arguments"
        assert await stack(host) == [BASE, "unfit-3"]
        assert (await host.services.get(WORKFLOW_MANAGER).get("tale")).id == "tale"
