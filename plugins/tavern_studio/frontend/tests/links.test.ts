import { expect, test } from "vitest";
import { compare } from "../src/editor/comparison";
import { moveNodes, type WorkflowDocument, type WorkflowNode } from "../src/editor/document";
import { makeGroup, moveInto, unpackGroup, wrapInLoop } from "../src/editor/grouping";
import {
  addPoint,
  frameOf,
  keepPoints,
  middleOf,
  nameLinks,
  pathThrough,
  pointsOf,
  setPoints,
  straighten,
} from "../src/editor/links";
import type { Slots } from "../src/editor/slots";
import { pathOf } from "../src/editor/paths";

const node = (id: string, x: number, y = 0, more: Partial<WorkflowNode> = {}): WorkflowNode => ({
  id,
  type: "core:Text",
  position: { x, y },
  ...more,
});
const edge = (id: string, source: string, target: string, more = {}) => ({
  id,
  source,
  sourceHandle: "text",
  target,
  targetHandle: "text",
  ...more,
});
const routed = { reroute: [{ x: 150, y: 50 }] };
/** a → b → c, and d by itself. */
const document: WorkflowDocument = {
  nodes: [node("a", 0), node("b", 300), node("c", 600), node("d", 0, 400)],
  edges: [edge("ab", "a", "b", routed), edge("bc", "b", "c", { linkName: "text" })],
};
const points = (of: WorkflowDocument, id = "ab") => pointsOf(of.edges.find((one) => one.id === id)!);
const slots = (): Slots => ({
  inputs: {},
  outputs: { text: { dataFlowType: "STRING" } },
  innerInputs: {},
  innerOutputs: {},
});
const move = (of: WorkflowDocument, ...to: [string, number, number][]) =>
  keepPoints(of, moveNodes(of, new Map(to.map(([id, x, y]) => [id, { x, y }]))));

test("a point comes into the nearest part of an edge", () => {
  const ends: [{ x: number; y: number }, { x: number; y: number }] = [
    { x: 0, y: 0 },
    { x: 300, y: 0 },
  ];
  const before = addPoint(document, "ab", { x: 40, y: 10 }, ends);
  const after = addPoint(before, "ab", { x: 280, y: 0 }, ends);
  expect(points(after).map(({ x }) => x)).toEqual([40, 150, 280]);
  expect(addPoint(straighten(after, ["ab"]), "ab", { x: 1, y: 1 }, ends).edges[0]?.reroute).toEqual([{ x: 1, y: 1 }]);
  expect(setPoints(document, "ab", []).edges[0]).toEqual(edge("ab", "a", "b"));
  expect(points(document)).toEqual([{ x: 150, y: 50 }]); // documents are never changed
  expect(
    middleOf([
      { x: 0, y: 0 },
      { x: 10, y: 0 },
      { x: 110, y: 0 },
    ]),
  ).toEqual({ x: 60, y: 0 });
});

test("points go where both ends of their edge go", () => {
  expect(points(move(document, ["a", 0, 100], ["b", 300, 100]))).toEqual([{ x: 150, y: 150 }]);
  expect(points(move(document, ["a", 0, 100]))).toEqual([{ x: 150, y: 50 }]);
});

test("points lie in the zone of their edge, and stay where they are when that is another", () => {
  const zone: WorkflowDocument = {
    ...document,
    nodes: [...document.nodes, node("zone", 1000, 1000, { type: "core:LoopZone" })],
  };
  const inside = ["a", "b"].reduce((next, id) => moveInto(next, id, "zone"), zone);
  const kept = keepPoints(zone, inside);
  expect([frameOf(zone, zone.edges[0]!), frameOf(kept, kept.edges[0]!)]).toEqual([null, "zone"]);
  expect(points(kept)).toEqual([{ x: -850, y: -950 }]);
  expect(points(move(kept, ["zone", 0, 0]))).toEqual([{ x: -850, y: -950 }]);
  expect(points(keepPoints(kept, moveInto(kept, "a", null)))).toEqual([{ x: 150, y: 50 }]);
  const looped = wrapInLoop(document, ["a", "b"], slots).document;
  const place = looped.nodes.find((one) => one.id === "a")!.position;
  expect(points(keepPoints(document, looped))).toEqual([{ x: 150 + place.x, y: 50 + place.y }]);
});

test("points go into a group and out of it with their nodes", () => {
  const { made, put } = makeGroup(document, ["a", "b"], "Both", slots);
  expect(points(made)).toEqual([{ x: 150, y: 50 }]);
  const outer = put("both");
  const moved = moveNodes(outer.document, new Map([[outer.id, { x: 20, y: 30 }]]));
  const back = unpackGroup(moved, outer.id, made).document;
  expect(points(back)).toEqual([{ x: 170, y: 80 }]);
  expect(back.edges.find((one) => one.id === "bc")?.linkName).toBe("text");
  const across = { ...document, edges: [edge("bc", "b", "c", routed)] };
  const grouped = makeGroup(across, ["b"], "One", slots);
  expect(keepPoints(across, grouped.put("one").document).edges[0]?.reroute).toBeUndefined();
});

test("a name is drawn, and means nothing", () => {
  const named = nameLinks(document, ["ab"], "greeting");
  expect(named.edges[0]).toEqual(edge("ab", "a", "b", { ...routed, linkName: "greeting" }));
  expect(compare("", document, straighten(named, ["ab"])).edges.size).toBe(0);
  expect(nameLinks(named, ["ab", "bc"], undefined).edges.map((one) => one.linkName)).toEqual([undefined, undefined]);
});

test("a file may say anything of points", () => {
  expect(pointsOf(edge("e", "a", "b", { reroute: [{ x: 1 }, null, "x", { x: 1, y: 2 }] }))).toEqual([{ x: 1, y: 2 }]);
  expect(pointsOf(edge("e", "a", "b", { reroute: "no" }))).toEqual([]);
});

test("a path leads through every point", () => {
  const path = pathThrough([
    { x: 0, y: 0 },
    { x: 50, y: 80 },
    { x: 200, y: 0 },
  ]);
  expect(path).toMatch(/^M0,0 C25,0 [\d.,-]+ 50,80 C[\d.,-]+ 125,0 200,0$/);
});

test("a path has what leads to a node and from it", () => {
  const path = pathOf(document, ["b"]);
  expect([[...path.nodes].sort(), [...path.edges].sort()]).toEqual([
    ["a", "b", "c"],
    ["ab", "bc"],
  ]);
  expect([...pathOf(document, ["c"]).edges].sort()).toEqual(["ab", "bc"]);
  expect(pathOf(document, ["d"]).edges.size).toBe(0);
  const circle = { ...document, edges: [...document.edges, edge("ca", "c", "a")] };
  expect(pathOf(circle, ["a"]).nodes.size).toBe(3);
});
