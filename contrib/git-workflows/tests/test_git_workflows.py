"""Saving, moving and deleting workflows makes commits; earlier states are listed, read and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tavern_host import TOOL_MANAGER, WORKFLOW_MANAGER, CallContext, Host, NotFound
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing import MakeHost
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope

pytestmark = pytest.mark.tavern(plugins=["../git_workflows"])

ADA = CallContext(principal=Principal(kind="user", id="ada"))


async def save(host: Host, *names: str, id: str = "tale", by: CallContext = ADA) -> None:
    """Save a workflow once per name."""
    for name in names:
        await host.services.get(WORKFLOW_MANAGER).save(id, Workflow(name=name), call=by)


async def use(host: Host, tool: str, **arguments: Any) -> Any:
    result = await host.services.get(TOOL_MANAGER).call(
        ToolCallRequest(tool_id=f"node:git-workflows:{tool}", arguments=arguments)
    )
    assert result.status == "done", result.error.message
    return result.structured


async def messages(host: Host, workflow: str = "") -> list[str]:
    return [f"{one['author']}: {one['message']}" for one in await use(host, "Log", workflow=workflow)]


async def name(host: Host, id: str = "tale") -> str | None:
    return (await host.services.get(WORKFLOW_MANAGER).get(id)).workflow.name


async def test_each_save_is_a_commit_of_the_person(host: Host) -> None:
    await save(host, "One")
    await save(host, "Two", by=CallContext(principal=Principal(kind="user", id="Bob <b@x>")))
    assert await messages(host, "tale") == ["Bob b@x: Save tale", "ada: Save tale"]


async def test_without_a_workflow_all_commits_are_listed(host: Host) -> None:
    await save(host, "One")
    await save(host, "Other", id="sub/other")
    assert await messages(host) == ["ada: Save sub/other", "ada: Save tale"]
    assert await messages(host, "sub/other") == ["ada: Save sub/other"]
    assert await messages(host, "nothing") == []


async def test_nothing_is_listed_before_the_first_save(host: Host) -> None:
    assert await messages(host) == []


async def test_an_earlier_state_is_read_and_restored(host: Host) -> None:
    await save(host, "One", "Two")
    first = (await use(host, "Log", workflow="tale"))[-1]["commit"]
    earlier = await host.services.get(WORKFLOW_MANAGER).get(f"tale@{first}")
    assert (earlier.workflow.name, earlier.source) == ("One", "plugin:git-workflows")
    await use(host, "Restore", workflow="tale", commit=first[:8])
    assert await name(host) == "One"
    assert len(await messages(host, "tale")) == 3


async def test_agents_restore_with_an_approval(host: Host) -> None:
    await save(host, "One")
    request = ToolCallRequest(tool_id="git-workflows:restore", arguments={"workflow": "tale", "commit": "0" * 12})
    agent = CallContext(principal=Principal(kind="agent", id="keeper"))
    scope = ToolScope(allowed=["git-workflows:*"])
    result = await host.services.get(TOOL_MANAGER).call(request, scope=scope, call=agent)
    assert result.status == "awaiting_approval", result.error


async def test_a_deleted_workflow_comes_back(host: Host) -> None:
    await save(host, "One")
    await host.services.get(WORKFLOW_MANAGER).delete("tale", call=ADA)
    assert await messages(host, "tale") == ["ada: Delete tale", "ada: Save tale"]
    await use(host, "Restore", workflow="tale", commit=(await use(host, "Log"))[-1]["commit"])
    assert await name(host) == "One"


async def test_a_move_is_one_commit(host: Host) -> None:
    await save(host, "One")
    await host.services.get(WORKFLOW_MANAGER).move("tale", "old/tale", call=ADA)
    assert await messages(host, "old/tale") == ["ada: Move tale to old/tale"]
    assert len(await messages(host)) == 2


async def test_what_others_wrote_into_the_file_is_committed_first(host: Host, tavern_project: Path) -> None:
    await save(host, "One")
    (tavern_project / "workflows" / "tale.json").write_text('{"name": "By hand", "nodes": [], "edges": []}')
    await save(host, "Two")
    assert await messages(host) == ["ada: Save tale", "host: Take tale as it is in its file", "ada: Save tale"]


async def test_saving_the_same_again_makes_no_commit(host: Host) -> None:
    await save(host, "One", "One")
    assert len(await messages(host)) == 1


async def test_a_save_that_is_refused_makes_no_commit(host: Host) -> None:
    await save(host, "One")
    with pytest.raises(Conflict):
        await host.services.get(WORKFLOW_MANAGER).save("tale", Workflow(name="Two"), expected_revision="stale")
    assert len(await messages(host)) == 1


async def test_commits_survive_a_restart(make_host: MakeHost) -> None:
    async with make_host() as host:
        await save(host, "One")
    async with make_host() as host:
        await save(host, "Two")
        assert len(await messages(host)) == 2


async def test_commits_that_are_not_there_are_not_found(host: Host) -> None:
    await save(host, "One")
    for id in (f"tale@{'0' * 12}", "tale@main", "tale@", "other@" + (await use(host, "Log"))[0]["commit"], "nothing"):
        with pytest.raises(NotFound):
            await host.services.get(WORKFLOW_MANAGER).get(id)


async def test_the_original_still_does_the_rest(host: Host) -> None:
    await save(host, "One", "Two")
    workflows = host.services.get(WORKFLOW_MANAGER)
    assert [one.id for one in await workflows.list_workflows() if one.source == "project"] == ["tale"]
    assert {revision.kind for revision in await workflows.history("tale")} == {"published"}
    assert await workflows.uses("tale") == []


async def test_a_commit_that_fails_does_not_undo_the_save(host: Host, tavern_project: Path) -> None:
    repository = tavern_project / ".tavern" / "plugins" / "git-workflows" / "workflows.git"
    repository.parent.mkdir(parents=True, exist_ok=True)
    repository.write_text("no repository")
    await save(host, "One")
    assert await name(host) == "One"
