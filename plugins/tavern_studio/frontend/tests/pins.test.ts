import { describe, expect, test } from "vitest";
import { kindOf } from "../src/editor/controls/kinds";
import { copyOf, pasteInto } from "../src/editor/clipboard";
import type { Slot, WorkflowDocument } from "../src/editor/document";
import { mayPin, pinSlot, pinsOf, withPins } from "../src/editor/pins";

const at = { x: 0, y: 0 };
const document: WorkflowDocument = {
  nodes: [
    { id: "a", type: "core:Text", position: at, pinnedOutputs: { text: "two\nlines", gone: 1 } },
    { id: "b", type: "core:Text", position: at, bypassed: true, pinnedOutputs: { text: "x" } },
    { id: "in", type: "core:Text", position: at, parentNode: "loop", pinnedOutputs: { text: "x" } },
    { id: "c", type: "core:Text", position: at, parentNode: "b" },
    { id: "loop", type: "core:LoopZone", position: at },
  ],
  edges: [],
};
const text: Slot = { dataFlowType: "STRING" };
const slotsOf = () => ({ inputs: {}, outputs: { text }, innerInputs: {}, innerOutputs: {} });

describe("pinned outputs", () => {
  test("are those of nodes that run, and have them still", () => {
    expect(pinsOf(document, slotsOf)).toEqual({ a: { text: "two\nlines" } });
    expect(document.nodes.map((node) => mayPin(document, node))).toEqual([true, true, false, true, true]);
  });

  test("are part of the node: a copy has them, and letting go takes them away", () => {
    const copied = copyOf(document, new Set(["a"]), { titleOf: (node) => node.id });
    const { document: pasted } = pasteInto(document, copied);
    expect(pasted.nodes.at(-1)?.pinnedOutputs).toEqual({ text: "two\nlines", gone: 1 });
    expect(JSON.stringify(withPins(document, "a", undefined).nodes[0])).not.toContain("pinned");
  });

  test("are edited in a field for what they are", () => {
    const choice: Slot = { dataFlowType: "STRING", matchCategories: ["ComboOption"] };
    const rows: [Slot, unknown, string][] = [
      [text, "a", "lines"],
      [choice, "a", "lines"],
      [{ dataFlowType: "WILDCARD" }, "a\nb", "lines"],
      [{ dataFlowType: "WILDCARD" }, { a: 1 }, "json"],
      [{ ...text, isStream: true }, "all of it", "lines"],
      [{ ...text, isStream: true }, ["a", "b"], "json"],
      [{ dataFlowType: "INTEGER", config: { min: 3 } }, 1, "number"],
      [{ dataFlowType: "BOOLEAN" }, true, "toggle"],
      [{ ...text, matchCategories: ["Markdown"] }, "# a", "code"],
      [{ dataFlowType: "ARRAY", config: { widget: "tool-picker" } }, ["a"], "json"],
    ];
    expect(rows.map(([slot, value]) => kindOf(pinSlot(slot, value)))).toEqual(rows.map(([, , kind]) => kind));
  });
});
