import { expect, test } from "vitest";
import { within } from "../src/editor/canvas/near";
import { stepOf } from "../src/editor/canvas/scaling";
import type { InputRow } from "../src/editor/canvas/shownnode";
import { estimated, measured } from "../src/editor/canvas/standin";

const row = (key: string, control: InputRow["control"] = "none"): InputRow => ({
  key,
  slot: { dataFlowType: "STRING" },
  handles: [key],
  isConnected: false,
  control,
});

test("a node's size is estimated by its rows, a control below its slot included", () => {
  const plain = estimated([row("a"), row("b")], { out: { dataFlowType: "STRING" } }, false);
  expect(plain.handles.map(({ id, kind }) => [id, kind])).toEqual([
    ["a", "target"],
    ["b", "target"],
    ["out", "source"],
  ]);
  const tall = estimated([row("a", "below"), row("b")], {}, true);
  expect(tall.handles[1]!.top).toBeGreaterThan(plain.handles[1]!.top + 26);
  expect(tall.width).toBeGreaterThan(plain.width);
});

test("what was measured counts as long as the node has the same handles", () => {
  const { handles } = estimated([row("a")], {}, false);
  const at = { id: "a", type: "target", nodeId: "n", position: "left", x: 0, y: 64, width: 12, height: 12 };
  const drawn = { dimensions: { width: 300, height: 90 }, handleBounds: { source: null, target: [at] } } as never;
  expect(measured(drawn, handles)).toEqual({ width: 300, height: 90, handles: [{ id: "a", kind: "target", top: 70 }] });
  expect(measured(drawn, estimated([row("b")], {}, false).handles)).toBeUndefined();
  expect(measured(undefined, handles)).toBeUndefined();
});

test("nodes are near that the view meets, with a margin around it", () => {
  const places = [0, 150, 260].map((x) => ({ id: `at${x}`, x, y: 0, width: 10, height: 10 }));
  const view = { x: 0, y: 0, width: 100, height: 100 };
  expect(within(places, view, 0)).toEqual(["at0"]);
  expect(within(places, view, 0.5)).toEqual(["at0", "at150"]);
});

test("letters follow the zoom in a few steps, and only where slots are no longer legible", () => {
  expect(stepOf(2)).toBe(1);
  expect(stepOf(0.7)).toBe(1);
  const zooms = Array.from({ length: 60 }, (_, index) => 0.1 + index * 0.01);
  expect(new Set(zooms.map(stepOf)).size).toBeLessThan(13);
  for (const zoom of zooms) expect(stepOf(zoom) <= zoom && stepOf(zoom) * 1.21 > zoom).toBe(true);
});
