"""The override: earlier versions of workflows are kept, counted and readable."""

from __future__ import annotations

import pytest

from tavern_host import WORKFLOW_MANAGER, Host, NotFound
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing import MakeHost
from tavern_workflows.api.workflows import WorkflowManager

pytestmark = pytest.mark.tavern(plugins=["../my_awesome_plugin"])


def keep(versions: int) -> pytest.MarkDecorator:
    """Return the marker of a test in which so many versions are kept."""
    return pytest.mark.tavern(settings={"extensions.my-awesome-plugin.keepVersions": versions})


async def save(host: Host, *names: str) -> WorkflowManager:
    """Save a workflow once per name, under the id `tale`."""
    workflows = host.services.get(WORKFLOW_MANAGER)
    for name in names:
        await workflows.save("tale", Workflow(name=name))
    return workflows


async def names(workflows: WorkflowManager) -> list[str]:
    return [summary.name for summary in await workflows.list_workflows()]


async def test_a_new_workflow_has_no_earlier_version(host: Host) -> None:
    assert await names(await save(host, "One")) == ["One"]


async def test_saving_again_keeps_what_was_there(host: Host) -> None:
    workflows = await save(host, "One", "Two", "Three")
    assert await names(workflows) == ["Three (2 earlier versions)"]
    assert [(await workflows.get(f"tale@{n}")).workflow.name for n in (1, 2)] == ["One", "Two"]
    assert (await workflows.get("tale@1")).source == "plugin:my-awesome-plugin"


async def test_saving_the_same_again_keeps_nothing(host: Host) -> None:
    assert await names(await save(host, "One", "One")) == ["One"]


@keep(versions=1)
async def test_only_as_many_are_kept_as_the_setting_says(host: Host) -> None:
    workflows = await save(host, "One", "Two", "Three")
    assert await names(workflows) == ["Three (1 earlier version)"]
    assert (await workflows.get("tale@2")).workflow.name == "Two"
    with pytest.raises(NotFound, match="there is no workflow 'tale@1'"):
        await workflows.get("tale@1")


@keep(versions=0)
async def test_none_is_kept_where_the_setting_is_0(host: Host) -> None:
    assert await names(await save(host, "One", "Two")) == ["Two"]


async def test_a_save_that_is_refused_keeps_nothing(host: Host) -> None:
    workflows = await save(host, "One")
    with pytest.raises(Conflict):
        await workflows.save("tale", Workflow(name="Two"), expected_revision="stale")
    assert await names(workflows) == ["One"]


async def test_versions_survive_a_restart(make_host: MakeHost) -> None:
    async with make_host() as host:
        await save(host, "One", "Two")
    async with make_host() as host:
        assert (await host.services.get(WORKFLOW_MANAGER).get("tale@1")).workflow.name == "One"


async def test_a_version_keeps_what_this_program_does_not_know(host: Host) -> None:
    workflows = host.services.get(WORKFLOW_MANAGER)
    await workflows.save("tale", Workflow.model_validate({"name": "One", "mood": "gloomy"}))
    await workflows.save("tale", Workflow(name="Two"))
    assert (await workflows.get("tale@1")).workflow.model_dump()["mood"] == "gloomy"


@pytest.mark.parametrize("name", ["../tale@1", "tale@", "@1", "tale@99999", "tale@" + "9" * 5000, "/etc/passwd@1"])
async def test_a_name_that_is_no_version_is_not_found(host: Host, name: str) -> None:
    workflows = await save(host, "One", "Two")
    with pytest.raises(NotFound):
        await workflows.get(name)
