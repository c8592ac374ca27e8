import { expect, test } from "vitest";
import {
  groupsOf,
  kindOf,
  languageOf,
  numberProblem,
  placeOnNode,
  previewOf,
  sliderOf,
  withPickers,
} from "../src/editor/controls/kinds";
import type { NodeDefinition } from "../src/editor/nodetypes";
import type { Slot } from "../src/editor/document";

const slot = (
  dataFlowType: Slot["dataFlowType"],
  matchCategories: string[] = [],
  config: Record<string, unknown> = {},
): Slot => ({
  dataFlowType,
  matchCategories,
  config,
});

test("each kind of slot has its control, and its place on a node", () => {
  const rows: [Slot, string, string][] = [
    [slot("STRING"), "text", "beside"],
    [slot("STRING", [], { multiline: true }), "lines", "below"],
    [slot("STRING", ["Prompt"]), "lines", "below"],
    [slot("STRING", ["Markdown", "UiBlock"], { languageHint: "markdown", multiline: true }), "code", "preview"],
    [slot("STRING", ["Code", "JavaScript"]), "code", "preview"],
    [slot("STRING", ["Json", "ChatHistory", "NoDefaultEdit"]), "code", "none"],
    [slot("STRING", ["ComboOption"], { suggestions: ["a"] }), "choice", "beside"],
    [slot("STRING", [], { suggestions: ["a"] }), "text", "beside"],
    [slot("STRING", ["ResourceId", "FilePath"]), "file", "beside"],
    [slot("STRING", [], { format: "project-file" }), "file", "beside"],
    [slot("STRING", ["ResourceId"]), "workflow", "beside"],
    [slot("STRING", [], { widget: "model-picker" }), "model", "beside"],
    [slot("STRING", [], { widget: "tool-picker" }), "tool", "beside"],
    [slot("ARRAY", [], { widget: "tool-picker" }), "tools", "preview"],
    [slot("OBJECT", ["Json"]), "json", "preview"],
    [slot("WILDCARD"), "json", "none"],
    [slot("WILDCARD", ["Trigger"]), "button", "below"],
    [slot("BOOLEAN"), "toggle", "beside"],
    [slot("FLOAT"), "number", "beside"],
    [slot("BINARY"), "upload", "none"],
    [{ ...slot("STRING"), isStream: true }, "none", "none"],
    [{ ...slot("STRING"), multi: true }, "text", "none"],
  ];
  expect(rows.map(([one]) => [one, kindOf(one), placeOnNode(one)])).toEqual(rows);
});

test("a text is coloured as what its slot says it is", () => {
  expect(languageOf(slot("STRING", ["Code", "JavaScript"]))).toBe("javascript");
  expect(languageOf(slot("STRING", ["Json"], { languageHint: "yaml" }))).toBe("yaml");
});

test("a number is refused with the reason", () => {
  const why = (of: Slot, value: number) => numberProblem(of, value);
  expect(why(slot("INTEGER"), 1.5)).toBe("controls.number.whole");
  expect(why(slot("FLOAT", [], { min: 0, max: 1 }), 1.5)).toBe("controls.number.range");
  expect(why(slot("FLOAT", [], { min: 0 }), -1)).toBe("controls.number.min");
  expect(why(slot("FLOAT", [], { max: 0 }), 1)).toBe("controls.number.max");
  expect(why(slot("FLOAT"), Number.NaN)).toBe("controls.number.none");
  expect(why(slot("INTEGER", [], { min: 0, max: 10 }), 10)).toBeUndefined();
});

test("only a number with few steps has a slider", () => {
  expect(sliderOf(slot("FLOAT", [], { min: 0, max: 2, step: 0.1 }))).toEqual({ min: 0, max: 2, step: 0.1 });
  expect(sliderOf(slot("INTEGER", [], { min: 0, max: 4294967295 }))).toBeUndefined();
  expect(sliderOf(slot("INTEGER", [], { min: 0 }))).toBeUndefined();
});

test("choices are grouped by what stands before the slash", () => {
  const groups = groupsOf([
    { value: "a", label: "Round/Up" },
    { value: "b", label: "Plain" },
    { value: "c", label: "Round/Down" },
  ]);
  expect([...groups].map(([name, those]) => [name, those.map((one) => one.label)])).toEqual([
    ["Round", ["Up", "Down"]],
    ["", ["Plain"]],
  ]);
});

test("a preview shows the first lines, and the platform's model input is a picker", () => {
  expect(previewOf("a\nb\nc\nd")).toBe("a\nb\nc");
  expect(previewOf(["x", "y"])).toBe("x, y");
  expect(previewOf({ a: 1 })).toBe('{"a":1}');
  expect(previewOf(undefined)).toBe("");
  const definition = { inputs: { activated_model_id: slot("STRING") } } as unknown as NodeDefinition;
  expect(kindOf(withPickers(definition).inputs.activated_model_id!)).toBe("model");
});
