import { expect, test } from "vitest";
import { compare } from "../src/editor/comparison";
import { compareRuns } from "../src/runs/compare";

const run = (nodes: object) => ({ id: "run_1", nodes }) as never;
const done = (started: number, output: object) => ({ status: "complete", started, finished: started + 1, output });

test("two runs are put side by side in the order of time", () => {
  const here = run({ late: done(5, { text: "a" }), early: done(1, { b: 1, a: 2 }), gone: done(2, {}) });
  const there = run({ early: done(3, { a: 2, b: 1 }), late: done(9, { text: "b" }), made: done(12, {}) });
  const rows = compareRuns(here, there);
  expect(rows.map((row) => [row.name, row.result])).toEqual([
    ["early", "same"],
    ["gone", "onlyHere"],
    ["late", "different"],
    ["made", "onlyThere"],
  ]);
});

test("a node that failed is not the same as one that gave nothing", () => {
  const [row] = compareRuns(
    run({ a: { status: "error", output: null } }),
    run({ a: { status: "complete", output: null } }),
  );
  expect(row?.result).toBe("different");
});

test("what was run is the same document, whether defaults are written or not", () => {
  const drawn = { nodes: [{ id: "a", type: "t", position: { x: 4, y: 5 }, inputValues: { text: "hi" } }], edges: [] };
  const ran = {
    nodes: [{ id: "a", type: "t", inputValues: { text: "hi" }, configValues: {}, bypassed: false, policy: null }],
    edges: [],
  } as never;
  expect(compare("", ran, drawn).nodes.size).toBe(0);
  const other = { ...drawn, nodes: [{ ...drawn.nodes[0]!, inputValues: { text: "ho" } }] };
  expect(compare("", ran, other).nodes.get("a")).toBe("changed");
});

test("a node that a run had and the workflow has no longer is shown where there is room", () => {
  const ran = { nodes: [{ id: "a", type: "t" }], edges: [] } as never;
  expect(compare("", ran, { nodes: [], edges: [] }).document.nodes[0]?.position).toEqual({ x: 0, y: 0 });
});
