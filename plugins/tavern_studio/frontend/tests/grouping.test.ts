import { expect, test } from "vitest";
import type { Slot, WorkflowDocument, WorkflowNode } from "../src/editor/document";
import { makeGroup, moveInto, unpackGroup, whyNoGroup, wrapInLoop } from "../src/editor/grouping";

const text: Slot = { dataFlowType: "STRING" };
const slots = () => ({ inputs: {}, outputs: { text }, innerInputs: {}, innerOutputs: {} });
const node = (id: string, more: Partial<WorkflowNode> = {}): WorkflowNode => ({
  id,
  type: "core:Text",
  position: { x: 0, y: 0 },
  ...more,
});
const edge = (id: string, source: string, target: string, targetHandle = "text") => ({
  id,
  source,
  sourceHandle: "text",
  target,
  targetHandle,
});

/** a → b → merge[1], c → merge[0], merge → d; a → d too. */
const document: WorkflowDocument = {
  nodes: [
    node("a"),
    node("b", { position: { x: 300, y: 40 }, inputValues: { trim: true } }),
    node("c"),
    node("merge", { position: { x: 600, y: 0 }, inputConnectionOrders: { texts: ["e-c", "e-b"] } }),
    node("d", { position: { x: 900, y: 0 } }),
  ],
  edges: [
    edge("e-a", "a", "b"),
    edge("e-c", "c", "merge", "texts__0"),
    edge("e-b", "b", "merge", "texts__1"),
    edge("e-m", "merge", "d"),
    edge("e-ad", "a", "d", "other"),
  ],
};

/** What a document says, whatever its ids of edges and places are. */
function meaning(of: WorkflowDocument) {
  const edges = of.edges.map((one) => `${one.source}.${one.sourceHandle} > ${one.target}.${one.targetHandle}`).sort();
  return { edges, nodes: of.nodes.map((one) => [one.id, one.type, one.inputValues ?? {}]).sort() };
}

test("a group has the edges that cross its border as its interface", () => {
  const { made, put } = makeGroup(document, ["b", "merge"], "Both", slots);
  expect(Object.keys(made.interfaceInputs ?? {})).toEqual(["text", "text_2"]);
  expect(Object.keys(made.interfaceOutputs ?? {})).toEqual(["text"]);
  expect(made.nodes.map((one) => one.type)).toEqual(["core:GroupInput", "core:GroupOutput", "core:Text", "core:Text"]);
  const { document: outer, id } = put("groups/both");
  expect(outer.nodes.map((one) => one.id)).toEqual(["a", "c", "d", id]);
  expect(outer.nodes.at(-1)?.configValues).toEqual({ referencedWorkflowId: "groups/both" });
  expect(outer.edges.map((one) => `${one.source}>${one.target}.${one.targetHandle}`)).toEqual([
    "a>both.text",
    "c>both.text_2",
    "both>d.text",
    "a>d.other",
  ]);
});

test("what is packed and unpacked means the same, with its values and orders", () => {
  const { made, put } = makeGroup(document, ["b", "merge"], "Both", slots);
  const { document: outer, id } = put("groups/both");
  const { document: back, ids } = unpackGroup(outer, id, made);
  expect(ids).toEqual(["b", "merge"]);
  const plain = (of: WorkflowDocument) => ({
    ...meaning(of),
    order: of.nodes.find((one) => one.id === "merge")?.inputConnectionOrders?.texts?.length,
  });
  expect(plain(back)).toEqual(plain(document));
  const order = back.nodes.find((one) => one.id === "merge")?.inputConnectionOrders?.texts ?? [];
  expect(order.map((one) => back.edges.find((two) => two.id === one)?.source)).toEqual(["c", "b"]);
  expect(document.nodes).toHaveLength(5); // documents are never changed
});

test("values that were given to a group go where they were used", () => {
  const inner = makeGroup(document, ["b"], "One", slots).made;
  const outer = { nodes: [node("g", { type: "core:NodeGroup", inputValues: { text: "given" } })], edges: [] };
  const { document: back } = unpackGroup(outer, "g", inner);
  expect(back.nodes.map((one) => one.inputValues)).toEqual([{ trim: true, text: "given" }]);
});

test("a group within a group survives both being unpacked", () => {
  const one = makeGroup(document, ["b"], "One", slots);
  const first = one.put("one");
  const two = makeGroup(first.document, [first.id, "merge"], "Two", slots);
  const second = two.put("two");
  const unpacked = unpackGroup(second.document, second.id, two.made).document;
  const inner = unpacked.nodes.find((found) => found.configValues?.referencedWorkflowId === "one");
  expect(meaning(unpackGroup(unpacked, inner?.id ?? "", one.made).document)).toEqual(meaning(document));
});

test("the ends of a workflow and nodes of different zones are no group", () => {
  const nodes = [
    node("in", { type: "core:GroupInput" }),
    node("x", { parentNode: "z" }),
    node("y"),
    node("z", { type: "core:LoopZone" }),
  ];
  const why = (...ids: string[]) => whyNoGroup({ nodes, edges: [] }, ids);
  expect([why(), why("in"), why("x", "y"), why("y")]).toEqual([
    "editor.groups.nothing",
    "editor.groups.ends",
    "editor.groups.apart",
    undefined,
  ]);
});

test("a loop zone carries what leaves it, and nodes go in and out where they are", () => {
  const { document: looped, id } = wrapInLoop(document, ["b", "merge"], slots);
  expect(looped.nodes.find((one) => one.id === id)?.configValues?.carried).toEqual([
    { key: "text", dataFlowType: "STRING" },
  ]);
  expect(meaning(looped).edges).toContain("merge.text > loop.next__text");
  expect(meaning(looped).edges).toContain("loop.out__text > d.text");
  const out = moveInto(looped, "b", null);
  expect(out.nodes.find((one) => one.id === "b")).toMatchObject({ parentNode: null, position: { x: 430, y: 40 } });
  expect(moveInto(out, "b", id).nodes.find((one) => one.id === "b")?.position).toEqual(
    looped.nodes.find((one) => one.id === "b")?.position,
  );
  expect(moveInto(looped, id, id)).toBe(looped); // nothing lies in itself
});
