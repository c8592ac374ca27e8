import { expect, test } from "vitest";
import type { Slot } from "../src/editor/document";
import { missingInputs } from "../src/editor/runinputs";
import { beginWith, emptyWorkflow, isBare, templates } from "../src/editor/templates";

test("a bare workflow begins with a template, and keeps what it is called", () => {
  const bare = {
    ...emptyWorkflow("Mine"),
    description: "What for",
    comments: [{ id: "c", text: "", position: { x: 0, y: 0 } }],
  };
  expect(isBare(bare)).toBe(true);
  for (const key of Object.keys(templates).filter((one) => one !== "empty")) {
    const begun = beginWith(bare, key);
    expect([begun.name, begun.description, begun.comments, isBare(begun)], key).toEqual([
      "Mine",
      "What for",
      bare.comments,
      false,
    ]);
    const ids = new Set(begun.nodes.map((node) => node.id));
    expect(
      begun.edges.every((edge) => ids.has(edge.source) && ids.has(edge.target)),
      key,
    ).toBe(true);
  }
});

test("a required input lacks a value where it has neither one nor a default", () => {
  const slot = (required: boolean, more = {}): Slot => ({ dataFlowType: "STRING", required, ...more });
  const document = {
    ...emptyWorkflow("One"),
    interfaceInputs: { a: slot(true), b: slot(false), c: slot(true, { config: { default: "x" } }), d: slot(true) },
  };
  expect(missingInputs(document, { d: "" })).toEqual(["a"]);
  expect(missingInputs(document, { a: 0, d: false })).toEqual([]);
  expect(missingInputs(emptyWorkflow("None"), {})).toEqual([]);
});
