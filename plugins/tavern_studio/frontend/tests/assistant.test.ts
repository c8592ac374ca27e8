import { expect, test } from "vitest";
import { linesOf } from "../src/assistant/changes";

test("nodes are a line each, edges are counted", () => {
  const changes = [
    { kind: "added", what: "edge", id: "e1", localId: null },
    { kind: "added", what: "node", id: "a", localId: "x" },
    { kind: "removed", what: "edge", id: "e2", localId: null },
    { kind: "added", what: "edge", id: "e3", localId: null },
    { kind: "changed", what: "interface", id: "text", localId: null },
  ] satisfies Parameters<typeof linesOf>[0];
  expect(linesOf(changes)).toEqual([
    { kind: "added", what: "node", id: "a", n: 1 },
    { kind: "changed", what: "interface", id: "text", n: 1 },
    { kind: "added", what: "edge", id: "", n: 2 },
    { kind: "removed", what: "edge", id: "", n: 1 },
  ]);
  expect(linesOf([])).toEqual([]);
});
