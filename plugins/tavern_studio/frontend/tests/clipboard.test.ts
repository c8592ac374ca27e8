import { expect, test } from "vitest";
import { copyOf, joinOuter, pasteInto, type Nodes } from "../src/editor/clipboard";
import type { Slot, WorkflowDocument, WorkflowNode } from "../src/editor/document";

const text: Slot = { dataFlowType: "STRING" };
const inputs: Record<string, Record<string, Slot>> = {
  Say: { text },
  Join: { texts: { ...text, multi: true } },
  Count: { text: { dataFlowType: "INTEGER" } },
};
const nodes: Nodes = {
  slotsIn: (_, { type }) => ({
    inputs: inputs[type] ?? {},
    outputs: { text },
    innerInputs: {},
    innerOutputs: {},
  }),
  titleOf: (node) => node.displayName || node.type,
};
const node = (id: string, type = "Say", more: Partial<WorkflowNode> = {}): WorkflowNode => ({
  id,
  type,
  position: { x: 0, y: 0 },
  ...more,
});
const edge = (source: string, target: string, targetHandle = "text", more = {}) => ({
  id: `${source}>${target}`,
  source,
  sourceHandle: "text",
  target,
  targetHandle,
  ...more,
});
const ends = (document: WorkflowDocument) =>
  document.edges.map((one) => `${one.source}>${one.target}.${one.targetHandle}`);

/** a, b → join → end → c */
const from: WorkflowDocument = {
  nodes: [
    node("a"),
    node("b", "Say", { displayName: "Greeting" }),
    node("join", "Join", { inputConnectionOrders: { texts: ["b>join", "a>join"] } }),
    node("end"),
    node("c"),
  ],
  edges: [
    edge("a", "join", "texts__1"),
    edge("b", "join", "texts__0"),
    edge("join", "end", "text", { reroute: [{ x: 5, y: 5 }] }),
    edge("end", "c"),
  ],
};
const paste = (ids: string[], into: WorkflowDocument) => {
  const copied = JSON.parse(JSON.stringify(copyOf(from, new Set(ids), nodes, "from")));
  const { document, renamed } = pasteInto(into, copied);
  return { document, joined: joinOuter(document, copied, renamed, nodes) };
};

test("nodes are pasted with the edges between them, beside where they were", () => {
  const { document } = paste(["join", "end"], from);
  expect(ends(document).slice(4)).toEqual(["join-2>end-2.text"]);
  expect(document.edges[4]?.reroute).toEqual([{ x: 45, y: 45 }]);
  expect(document.nodes.at(-1)?.position).toEqual({ x: 40, y: 40 });
  const zone = { nodes: [node("zone"), node("inner", "Say", { parentNode: "zone" })], edges: [] };
  const copied = copyOf(zone, new Set(["zone"]), nodes);
  expect(pasteInto(zone, copied).document.nodes.map((one) => one.position.x)).toEqual([0, 0, 40, 0]); // it goes with its zone
});

test("edges to others are made again by id and name, in their order", () => {
  const into = { nodes: [node("a"), node("x", "Say", { displayName: "Greeting" }), node("c")], edges: [] };
  const { joined } = paste(["join", "end"], into);
  expect(ends(joined).sort()).toEqual(["a>join.texts__1", "end>c.text", "join>end.text", "x>join.texts__0"]);
});

test("an edge that is there is not replaced, nor one made that does not fit", () => {
  const taken = { nodes: [node("c"), node("other")], edges: [edge("other", "c")] };
  expect(ends(paste(["end"], taken).joined)).toEqual(["other>c.text"]);
  expect(ends(paste(["end"], { nodes: [node("c", "Count")], edges: [] }).joined)).toEqual([]);
  const two = {
    nodes: [node("x", "Say", { displayName: "Greeting" }), node("y", "Say", { displayName: "Greeting" })],
    edges: [],
  };
  expect(ends(paste(["join"], two).joined)).toEqual([]); // which of the two is not known
  const many = { nodes: [node("join", "Join"), node("other")], edges: [edge("other", "join", "texts__0")] };
  expect(ends(paste(["a"], many).joined).sort()).toEqual(["a>join.texts__1", "other>join.texts__0"]);
});
