import { expect, test } from "vitest";
import { kindOf } from "../src/sharing/importing";
import { isPng, keywordsIn, textIn, withText } from "../src/sharing/png";
import { sketchOf } from "../src/sharing/sketch";

const DOT = Uint8Array.from(
  atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="),
  (sign) => sign.charCodeAt(0),
);

test("a picture carries a text, in any language, and stays a picture", () => {
  const made = withText(DOT, "tavern-workflow", '{"name":"问候"}');
  expect(isPng(made)).toBe(true);
  expect(textIn(made, "tavern-workflow")).toBe('{"name":"问候"}');
  expect(keywordsIn(made)).toEqual(["tavern-workflow"]);
  expect(textIn(made, "tavern")).toBeUndefined();
  expect(textIn(DOT, "tavern-workflow")).toBeUndefined();
  // The sum that decoders check, as zlib computes it for these bytes.
  const short = withText(DOT, "a", "b");
  const at = short.length - 12 - 4;
  expect(new DataView(short.buffer).getUint32(at)).toBe(0x9f0c0442);
});

test("what is cut off or no picture is refused, and read as far as it goes", () => {
  expect(() => withText(DOT.subarray(0, 40), "a", "b")).toThrow();
  expect(() => withText(new Uint8Array(20), "a", "b")).toThrow();
  const made = withText(DOT, "a", "b");
  for (let length = 0; length < made.length - 12; length += 3)
    expect(textIn(made.subarray(0, length), "a")).toBeUndefined();
});

test("a file is known by the marks of its kind", () => {
  expect(kindOf({ nodes: [], edges: [] })).toBe("workflow");
  expect(kindOf({ format: "tavern-chat-history" })).toBe("conversation");
  expect(kindOf({ core_deliberation_workflow_id: "x" })).toBe("agent");
  for (const one of [{ spec: "chara_card_v3", data: {} }, { name: "A", first_mes: "" }, { data: { first_mes: "A" } }])
    expect(kindOf(one)).toBe("character");
  expect(kindOf({ prompts: [], prompt_order: [] })).toBe("preset");
  for (const one of [{ entries: {} }, { spec: "lorebook_v3", data: {} }, { type: "risu", data: [] }])
    expect(kindOf(one)).toBe("knowledge");
  for (const one of [{}, [], null, 3, { spec: "openapi" }]) expect(kindOf(one)).toBeUndefined();
});

test("a sketch has each node where it stands, in its zone too, and each edge", () => {
  const node = (id: string, x: number, more = {}) => ({ id, type: "core:Text", position: { x, y: 0 }, ...more });
  const document = {
    nodes: [
      node("a", 0),
      node("zone", 500, { type: "core:LoopZone", width: 700, height: 300 }),
      node("b", 100, { parentNode: "zone" }),
    ],
    edges: [
      { id: "e", source: "a", sourceHandle: "o", target: "b", targetHandle: "i" },
      { id: "lost", source: "a", sourceHandle: "o", target: "gone", targetHandle: "i" },
    ],
  };
  const sketch = sketchOf(document, new Map())!;
  expect(sketch.boxes.map(({ id, x }) => [id, x])).toEqual([
    ["zone", 500],
    ["a", 0],
    ["b", 600],
  ]);
  expect(sketch.lines).toHaveLength(1);
  expect(sketch.view.width).toBe(1200 + 48);
  expect(sketchOf({ nodes: [], edges: [] }, new Map())).toBeUndefined();
  const inner = node("inner", 10, { type: "core:LoopZone", parentNode: "zone" });
  const nested = { nodes: [...document.nodes, inner, node("c", 1, { parentNode: "inner" })], edges: [] };
  expect(sketchOf(nested as never, new Map())!.boxes.find(({ id }) => id === "c")!.x).toBe(511);
  const unplaced = { nodes: [{ id: "a", type: "core:Text" }], edges: [] };
  expect(sketchOf(unplaced as never, new Map())!.boxes[0]).toMatchObject({ x: 0, y: 0 });
});
