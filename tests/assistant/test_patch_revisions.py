"""Patches that are applied: what is saved, what becomes of those for an old revision, and going back."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from helpers.repetition import Failures, refused

from tavern_host import NotFound
from tavern_host.contracts.calls import CallContext, Principal, operator_call
from tavern_host.contracts.errors import Conflict, PermissionDenied
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER
from tests.agents.agent_bench import agent, tool
from tests.assistant.conftest import SHOP

pytestmark = pytest.mark.asyncio(loop_scope="module")

UP = {"op": "add", "path": "/nodes/-", "value": {"localId": "up", "type": "core:UpperCase"}}
AGENT = CallContext(principal=Principal(kind="agent", id="smith"))


def value(node: str, text: str) -> dict[str, Any]:
    return {"op": "replace", "path": f"/nodes/{node}/inputValues/text", "value": text}


def fed(source: str) -> dict[str, Any]:
    ends = {"source": source, "sourceHandle": "text", "targetLocalId": "up", "targetHandle": "text"}
    return {"op": "add", "path": "/edges/-", "value": ends}


def moved(document: dict[str, Any], node: str, **change: Any) -> dict[str, Any]:
    """The document as a person left it who changed a node."""
    made = copy.deepcopy(document)
    next(one for one in made["nodes"] if one["id"] == node).update(change)
    return made


def without(document: dict[str, Any], node: str) -> dict[str, Any]:
    made = copy.deepcopy(document)
    made["nodes"] = [one for one in made["nodes"] if one["id"] != node]
    made["edges"] = [one for one in made["edges"] if node not in (one["source"], one["target"])]
    return made


async def test_patch_is_a_draft_with_its_author_and_goes_back(patches: Any) -> None:
    name = patches.workflow(SHOP)
    before, first = await patches.present(name)
    result = await patches.assistant.apply_patch([UP, fed("say")], name, reason="louder", call=AGENT)
    assert result.applied and result.former == first
    after, now = await patches.present(name)
    assert (after, now) == (result.document, result.revision)
    file = await patches.manager.get(name)
    assert file.revision == first, "the file is what it was until somebody publishes"
    newest = (await patches.manager.history(name, limit=1))[0]
    assert (newest.by, newest.reason, newest.kind) == ("agent:smith", "louder", "draft")
    second = await patches.assistant.apply_patch([value("say", "x")], name, call=AGENT)

    def undo(revision: str, to: str) -> Any:
        return patches.assistant.undo_patch(name, revision, to, call=operator_call())

    await refused([(undo(result.revision, first), Conflict, ""), (undo(second.revision, "never"), NotFound, "")])
    back = await undo(second.revision, second.former)
    assert await patches.present(name) == (after, now) and back.document == after
    await undo(back.revision, first)
    assert await patches.present(name) == (before, first) and before == SHOP


async def test_nothing_is_saved_of_what_changes_nothing_or_fails(patches: Any) -> None:
    name = patches.workflow(SHOP)
    for patch in (
        [],
        [{"op": "test", "path": "/extra/kept/0", "value": 1}],
        [value("say", "hello")],
        [value("say", "x"), UP],
    ):
        result = await patches.assistant.apply_patch(patch, name, call=operator_call())
        assert result.applied == (len(patch) < 2) and not result.changes
        assert (await patches.manager.draft(name)).workflow is None
    with pytest.raises(NotFound, match="did you mean"):
        await patches.assistant.apply_patch([UP], f"{name}x", call=operator_call())
    await patches.manager.delete(name, call=operator_call())
    with pytest.raises(NotFound):
        await patches.assistant.apply_patch([UP], name, call=operator_call())


SAY = value("say", "x")
REMOVED = {"op": "remove", "path": "/nodes/say"}
FIRST: list[Any] = [{"id": "0", "type": "core:Text"}, *SHOP["nodes"]]
TAKEN: list[Any] = [*SHOP["nodes"], {"id": "upper-case", "type": "core:Text"}]
BESIDE: list[Any] = [*SHOP["edges"], {**SHOP["edges"][0], "id": "e9", "targetHandle": "text_inputs__2"}]
SET, NAMED = (
    {"op": "add", "path": f"/nodes/{where}", "value": "k"} for where in ("join/configValues/k", "4/displayName")
)
MEANWHILE: tuple[tuple[str, dict[str, Any], list[Any], bool, Any], ...] = (
    # name, the document as somebody left it, a patch for the one before, whether it is rebased, what both touch
    ("a moved node", moved(SHOP, "say", position={"x": 9, "y": 9}), [SAY], True, None),
    ("another node", moved(SHOP, "out", displayName="End"), [SAY], True, None),
    ("another value of it", moved(SHOP, "join", inputValues={"separator": ";"}), [SET], True, None),
    ("the same value", moved(SHOP, "say", inputValues={"text": "y"}), [SAY], False, ["/nodes/say/inputValues/text"]),
    ("another node before it", {**SHOP, "nodes": FIRST}, [value("0", "x")], True, None),
    ("a node that is gone", without(SHOP, "say"), [SAY], False, None),
    ("an edge to a node that is gone", without(SHOP, "say"), [UP, fed("say")], False, None),
    ("removal of what was changed", moved(SHOP, "say", displayName="Bee"), [REMOVED], False, ["/nodes/say"]),
    ("removal of what was connected", {**SHOP, "edges": BESIDE}, [REMOVED], False, ["/edges/e9"]),
    ("the same new id", {**SHOP, "nodes": TAKEN}, [UP, fed("say"), NAMED], True, None),
)


async def test_patch_for_an_old_revision_is_rebased_or_refused(patches: Any) -> None:
    with Failures() as failures:
        for name, meanwhile, patch, is_rebased, touched in MEANWHILE:
            with failures.row(name):
                workflow = patches.workflow(SHOP)
                _, old = await patches.present(workflow)
                now = await patches.edit(workflow, meanwhile)
                before, _ = await patches.present(workflow)
                call = operator_call()
                result = await patches.assistant.apply_patch(patch, workflow, revision=old, call=call)
                after, revision = await patches.present(workflow)
                assert (result.applied, result.rebased) == (is_rebased, is_rebased), result.problems
                if is_rebased:
                    assert result.former == now and result.document == after and after != before
                    ids = [one["id"] for one in after["nodes"]]
                    assert len(ids) == len(set(ids)) and {one["id"] for one in before["nodes"]} <= set(ids)
                    continue
                assert (after, revision) == (before, now), "refused, so nothing is other"
                conflict = result.conflict
                assert conflict is not None and (conflict.expected, conflict.revision) == (old, now)
                assert conflict.by == "user:operator" and conflict.changes
                assert touched is None or conflict.touched == touched
    name = patches.workflow(SHOP)
    result = await patches.assistant.apply_patch([value("say", "x")], name, revision="nonsense", call=operator_call())
    assert not result.applied and result.conflict is not None and result.conflict.changes == []
    assert (await patches.manager.draft(name)).workflow is None


async def test_several_at_once_lose_nothing(patches: Any) -> None:
    name = patches.workflow(SHOP)
    _, old = await patches.present(name)
    calls = [CallContext(principal=Principal(kind="user", id=one)) for one in "abcdefgh"]
    patch = [UP, fed("say")]
    made = await asyncio.gather(
        *(patches.assistant.apply_patch(patch, name, revision=old, call=call) for call in calls)
    )
    assert all(one.applied for one in made)
    after, _ = await patches.present(name)
    new = ["upper-case", *(f"upper-case-{number}" for number in range(2, 9))]
    assert sorted(one["id"] for one in after["nodes"]) == ["ask", "join", "out", "say", *new]
    assert len(await patches.manager.history(name)) == 9, "the file and eight drafts"


async def test_tools_agents_and_settings_are_patched_alike(patches: Any) -> None:
    patches.write("tools/say.tool.json", tool("say", "core:Text", description="Say it."))
    patches.write("agents/smith.json", agent("smith"))
    rows = (
        ("tool", "say", "description", "Say it aloud.", 5),
        ("agent", "smith", "name", "Smithy", ""),
        ("settings", "tavern-agents", "recordRuns", False, "no"),
    )
    with Failures() as failures:
        for kind, name, key, new, wrong in rows:
            with failures.row(kind):
                at = "/api/settings-patches" if kind == "settings" else "/api/patches"

                async def ask(path: str, kind: str = kind, name: str = name, **more: Any) -> tuple[int, Any]:
                    answer: tuple[int, Any] = await patches.ask(path, kind=kind, id=name, **more)
                    return answer

                patch, bad = ([{"op": "replace", "path": f"/{key}", "value": one}] for one in (new, wrong))
                _, first = await ask("/api/patches/check", operations=patch)
                assert first["applied"] and [change["id"] for change in first["changes"]] == [f"/{key}"]
                status, problem = await ask(at, operations=bad)
                assert status == 409 and problem["problems"][0]["message"]
                status, result = await ask(at, operations=patch, revision=first["revision"])
                assert (status, result["document"][key], result["former"]) == (200, new, first["revision"])
                status, late = await ask(at, operations=patch, revision=first["revision"])
                assert (status, late["conflict"]["revision"]) == (409, result["revision"])
                status, _ = await ask(f"{at}/undo", revision=first["revision"], to=first["revision"])
                assert status == 409, "it is not at that revision"
                status, back = await ask(f"{at}/undo", revision=result["revision"], to=result["former"])
                assert (status, back["revision"]) == (200, first["revision"]), "apply, then undo, is what it was"
    about, call = {"id": "tavern-agents", "kind": "settings"}, operator_call()
    acts = (
        patches.assistant.apply_patch([], **about, call=call),
        patches.assistant.undo_patch(**about, revision="", to="", call=call),
    )
    await refused([(act, PermissionDenied, "somebody who operates") for act in acts])
    large = {"op": "add", "path": "/description", "value": "x" * 2**20}
    for kind in ("tool", "agent"):
        status, body = await patches.ask("/api/patches/check", kind=kind, document={"id": "x"}, operations=[large])
        assert (status, [one["code"] for one in body["problems"]]) == (200, ["too_large"])
    half = {"id": "half", "implementation": {"type": "node"}, "description": "x"}
    patches.write("tools/half.tool.json", half)
    mended = {"op": "add", "path": "/implementation/nodeType", "value": "core:Text"}
    other = {"op": "replace", "path": "/description", "value": "y"}
    for named in ({"id": "half"}, {"document": half}):
        for operation, applied in ((other, False), (mended, True)):
            _, body = await patches.ask("/api/patches/check", kind="tool", operations=[operation], **named)
            assert body["applied"] == applied, "what is checked can be saved"
    assert (await patches.ask("/api/patches", kind="tool", id="half", operations=[other]))[0] == 409
    patches.write("tools/noted.tool.json", '{"id": "noted" // why\n}')
    status, body = await patches.ask("/api/patches", kind="tool", id="noted", operations=[])
    assert status == 400
    assert "comments" in body["detail"]


async def test_patches_over_http_and_as_tools(patches: Any) -> None:
    name = patches.workflow(SHOP)
    status, body = await patches.ask("/api/patches/check", id=name, operations=[UP, fed("say")])
    assert status == 200 and body["applied"] and len(body["document"]["nodes"]) == 5
    status, body = await patches.ask("/api/patches", id=name, operations=[UP], reason="why")
    assert status == 409 and body["problems"][0]["code"] == "required_input"
    status, body = await patches.ask("/api/patches", id=name, operations=[UP, fed("say")])
    assert status == 200 and body["changes"][0]["localId"] == "up"
    status, undone = await patches.ask("/api/patches/undo", id=name, revision=body["revision"], to=body["former"])
    assert status == 200 and undone["document"] == SHOP
    for path, kind in (("/api/patches", "settings"), ("/api/settings-patches", "workflow")):
        assert (await patches.ask(path, kind=kind, id=name, operations=[]))[0] == 400
    assert (await patches.ask("/api/patches", operations=[]))[0] == 400
    status, body = await patches.ask("/api/patches/check", document={"nodes": []}, operations=[])
    assert status == 200 and body["applied"]

    tools = patches.host.services.get(TOOL_MANAGER)
    scope = ToolScope(allowed=["assistant:*"])
    calls = (
        ("assistant:propose_patch", {"id": name, "operations": [UP]}, "done", False),
        ("assistant:apply_patch", {"id": name, "operations": [UP, fed("say")], "reason": "r"}, "done", True),
        ("assistant:apply_patch", {"id": "x", "kind": "settings", "operations": [UP]}, "error", None),
        ("assistant:apply_patch", {"id": "smith", "kind": "agent", "operations": [UP]}, "awaiting_approval", None),
    )
    for tool_id, arguments, outcome, applied in calls:
        request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
        result = await tools.call(request, scope=scope, call=AGENT)
        assert result.status == outcome, result.error
        assert applied is None or result.structured["applied"] == applied
        assert "document" not in (result.structured or {})
    assert (await patches.manager.history(name, limit=1))[0].by == "agent:smith"
