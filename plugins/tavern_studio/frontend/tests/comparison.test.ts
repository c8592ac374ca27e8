import { expect, test } from "vitest";
import { compare, isSame, staleSince } from "../src/editor/comparison";

const node = (id: string, more = {}) => ({ id, type: "core:Text", position: { x: 0, y: 0 }, ...more });
const edge = { id: "e", source: "a", sourceHandle: "text", target: "b", targetHandle: "text" };

test("what was added, changed and removed is marked, and what was only moved is not", () => {
  const earlier = { nodes: [node("a"), node("b"), node("gone")], edges: [edge] };
  const later = {
    nodes: [node("a", { position: { x: 9, y: 9 } }), node("b", { inputValues: { text: "x" } }), node("new")],
    edges: [],
  };
  const found = compare("r1", earlier, later);
  expect([...found.nodes]).toEqual([
    ["b", "changed"],
    ["new", "added"],
    ["gone", "removed"],
  ]);
  expect([...found.edges]).toEqual([["e", "removed"]]);
  expect(found.document.nodes.map((one) => one.id)).toEqual(["a", "b", "new", "gone"]);
  expect(compare("r1", earlier, earlier).nodes.size).toBe(0);
});

test("documents are the same whatever the order of their keys", () => {
  const one = { nodes: [node("a", { inputValues: { x: 1, y: { b: 1, a: 2 } } })], edges: [] };
  const other = { edges: [], nodes: [node("a", { inputValues: { y: { a: 2, b: 1 }, x: 1 } })] };
  expect(isSame(one, other)).toBe(true);
  expect(isSame(one, { ...other, name: "x" })).toBe(false);
});

test("results are stale of what was changed since, and of what follows from it", () => {
  const edges = [edge, { ...edge, id: "f", source: "b", target: "c" }];
  const ran = { nodes: [node("a"), node("b"), node("c")], edges };
  expect([...staleSince(ran, ran), ...staleSince(undefined, ran)]).toEqual([]);
  const moved = { ...ran, nodes: [node("a", { position: { x: 9, y: 9 }, displayName: "A" }), node("b"), node("c")] };
  expect([...staleSince(ran, moved)]).toEqual([]);
  const changed = { ...ran, nodes: [node("a"), node("b", { inputValues: { text: "x" } }), node("c")] };
  expect([...staleSince(ran, changed)]).toEqual(["b", "c"]);
  expect([...staleSince(ran, { ...ran, edges: [edge] })]).toEqual(["c"]);
});
