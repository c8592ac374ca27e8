import { expect, test } from "vitest";
import {
  asDocument,
  unplacedIn,
  connect,
  orderOf,
  removeEdges,
  removeNodes,
  type Slot,
  type WorkflowDocument,
} from "../src/editor/document";

const inputs: Record<string, Slot> = {
  texts: { dataFlowType: "STRING", multi: true },
  separator: { dataFlowType: "STRING" },
};
const node = (id: string, more = {}) => ({ id, type: "core:Text", position: { x: 0, y: 0 }, ...more });
const empty: WorkflowDocument = { nodes: [node("a"), node("b"), node("merge")], edges: [] };
const ends = (source: string, targetHandle: string) => ({
  source,
  sourceHandle: "text",
  target: "merge",
  targetHandle,
});

test("edges into a multi input are numbered in their order", () => {
  let document = connect(empty, ends("a", "texts__0"), inputs);
  document = connect(document, ends("b", "texts__0"), inputs);
  expect(document.edges.map((edge) => [edge.source, edge.targetHandle])).toEqual([
    ["a", "texts__1"],
    ["b", "texts__0"],
  ]);
  expect(orderOf(document, "merge", "texts", inputs)).toEqual(["b-merge", "a-merge"]);
  document = removeEdges(document, ["b-merge"]);
  expect(document.edges.map((edge) => edge.targetHandle)).toEqual(["texts__0"]);
  expect(empty.edges).toEqual([]); // documents are never changed
});

test("an input that takes one edge loses the one that it had", () => {
  const document = connect(connect(empty, ends("a", "separator"), inputs), ends("b", "separator"), inputs);
  expect(document.edges.map((edge) => edge.source)).toEqual(["b"]);
});

test("what lies in a removed node is removed with its edges", () => {
  const inside = { ...empty, nodes: [...empty.nodes, node("loop"), node("inner", { parentNode: "loop" })] };
  const document = removeNodes(connect(inside, ends("inner", "texts"), inputs), ["loop"]);
  expect(document.nodes.map((one) => one.id)).toEqual(["a", "b", "merge"]);
  expect(document.edges).toEqual([]);
});

test("a file may leave out its edges and where its nodes are", () => {
  const drawn = asDocument({
    name: "Bare",
    nodes: [
      { id: "a", type: "core:Text" },
      { id: "b", type: "core:Text", position: { x: 5, y: 5 } },
    ],
  });
  expect([drawn.name, drawn.edges, drawn.nodes.map((one) => one.position)]).toEqual([
    "Bare",
    [],
    [
      { x: 0, y: 0 },
      { x: 5, y: 5 },
    ],
  ]);
});

test("nodes without a place stand where they were laid out, and zones reach around them", () => {
  const stored = {
    nodes: [
      { id: "loop", type: "core:LoopZone", position: { x: 5, y: 5 }, width: 700, height: 100 },
      { id: "in", type: "core:Text", parentNode: "loop", position: {} },
      { id: "new", type: "core:Text" },
    ],
  };
  const places = new Map([
    ["loop", { position: { x: 9, y: 9 }, width: 500, height: 300 }],
    ["in", { position: { x: 130, y: 80 } }],
  ]);
  const drawn = asDocument(stored, places);
  expect(unplacedIn(stored)).toEqual(["in", "new"]);
  expect(drawn.nodes.map((one) => one.position)).toEqual([
    { x: 5, y: 5 },
    { x: 130, y: 80 },
    { x: 520, y: 0 },
  ]);
  expect([drawn.nodes[0]?.width, drawn.nodes[0]?.height]).toEqual([700, 300]);
  const saved = asDocument(drawn, places);
  expect([saved.nodes === drawn.nodes, unplacedIn(drawn)]).toEqual([true, []]);
});
