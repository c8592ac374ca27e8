"""The vectors are what the rules in Python say, and what a check does; `tests/engine/test_edges.py` runs them. The
studio's editor agrees with them in `plugins/tavern_studio/frontend/tests/conformance.test.ts`."""

from __future__ import annotations

from helpers.repetition import Failures
from helpers.workflow_documents import edge

from tavern_assistant.deliberation.prompt import RULES as RULES_OF_PATCHES
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition
from tavern_workflows.check import check
from tavern_workflows.shape import read

from .vectors import FOLDER, RULES, rendered, vectors


def test_the_vectors_are_current() -> None:
    with Failures() as failures:
        for name in RULES:
            with failures.row(name):
                written = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
                assert written == rendered(name), "run python -m tests.conformance"
    assert {file.stem for file in FOLDER.glob("*.json")} == RULES.keys()


def test_the_assistants_prompt_says_what_the_vectors_say() -> None:
    pairs = vectors("slot_pairs")
    at = {slot["dataFlowType"]: place for place, slot in enumerate(pairs["slots"]) if len(slot) == 1}
    takes = {kind: [one for one in at if one != kind and pairs["verdicts"][at[one]][at[kind]] == "."] for kind in at}
    every = [kind for kind, sources in takes.items() if len(sources) == len(at) - 1]
    others = {kind: [one for one in takes[kind] if one not in every] for kind in at if kind not in every}
    said = [f"{kind} takes {', '.join(sources)}" for kind, sources in others.items() if sources]
    assert f"must be equal, but {'; '.join(said)}; {' and '.join(every)} go with all" in RULES_OF_PATCHES


def test_the_page_names_every_slot_of_a_loop() -> None:
    page = (FOLDER.parents[1] / "docs" / "workflows.md").read_text(encoding="utf-8")
    loops = [one for one in vectors("loops")["cases"] if "conditionSlot" not in one["node"].get("configValues", {})]
    slots = {key for one in loops for side in one if side.lower().endswith("puts") for key in one[side]}
    slots = {f"{key.partition('__')[0]}__key" if "__" in key else key for key in slots}
    assert not [key for key in slots if f"`{key}`" not in page]


def test_a_check_refuses_the_edges_that_the_vectors_refuse() -> None:
    pairs = vectors("slot_pairs")
    slots = [SlotDefinition.model_validate({**slot, "multi": True}) for slot in pairs["slots"]]
    ends = {f"s{place}": slot for place, slot in enumerate(slots)}
    kinds = {f"acme:{kind}": NodeDefinition(type=kind, namespace="acme", inputs=ends, outputs=ends) for kind in "ab"}
    nodes = [{"id": kind, "type": f"acme:{kind}"} for kind in "ab"]
    with Failures() as failures:
        for source, verdicts in zip(ends, pairs["verdicts"], strict=True):
            with failures.row(source):
                edges = [edge(target, f"a.{source}", f"b.{target}") for target in ends]
                found = check(read({"nodes": nodes, "edges": edges}), kinds)
                refused = {problem.path for problem in found if problem.severity == "error"}
                assert refused == {f"$.edges[{place}]" for place, verdict in enumerate(verdicts) if verdict != "."}
