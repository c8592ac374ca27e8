import { expect, test } from "vitest";
import { linesOf } from "../src/editor/canvas/blocks";
import { within } from "../src/editor/canvas/near";
import { stepOf } from "../src/editor/canvas/scaling";
import type { InputRow } from "../src/editor/canvas/shownnode";
import { boundsOf, estimated, isAsNoted, measured } from "../src/editor/canvas/standin";

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
  expect(measured(drawn, handles)).toEqual({ width: 300, height: 90, handles: [{ id: "a", kind: "target", top: 69 }] });
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

test("a name takes as many lines as there is room for, and what does not fit is cut", () => {
  const widthOf = (text: string) => text.length;
  expect(linesOf("Upper case", 20, 3, widthOf)).toEqual(["Upper case"]);
  expect(linesOf("Upper case of a text", 10, 3, widthOf)).toEqual(["Upper case", "of a text"]);
  expect(linesOf("Upper case of a text", 10, 1, widthOf)).toEqual(["Upper cas…"]);
  expect(linesOf("Uppercaseofatext", 8, 3, widthOf)).toEqual(["Upperca…"]);
  expect(linesOf("大写文本节点", 3, 2, widthOf)).toEqual(["大写文", "本节点"]);
});

test("a stand-in that is as it was noted is not measured, and one with another size or other handles is", () => {
  const outline = estimated([row("a")], { out: { dataFlowType: "STRING" } }, false);
  const { width, height } = outline;
  const node = { dimensions: { width, height }, handleBounds: boundsOf("n", outline) } as never;
  const drawn = (wide: number, handles: string[], face = "stand-in") => {
    const element = document.createElement("div");
    element.innerHTML = `<article class="${face}">${handles
      .map((one) => `<div class="vue-flow__handle" data-handleid="${one}"></div>`)
      .join("")}</article>`;
    Object.defineProperties(element, { offsetWidth: { value: wide }, offsetHeight: { value: height } });
    return element;
  };
  expect(isAsNoted(drawn(width, ["a", "out"]), node)).toBe(true);
  expect(isAsNoted(drawn(width + 1, ["a", "out"]), node)).toBe(false);
  expect(isAsNoted(drawn(width, ["a", "other"]), node)).toBe(false);
  expect(isAsNoted(drawn(width, ["a", "out"], "node"), node)).toBe(false);
  expect(measured(node, outline.handles)).toEqual(outline);
});
