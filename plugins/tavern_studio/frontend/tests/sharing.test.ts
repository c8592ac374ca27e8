import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { isPng, withText } from "../src/sharing/png";
import { sketchOf } from "../src/sharing/sketch";

/** Stands for the server. */
const server = { sent: [] as Request[], answers: [] as object[] };
let sharing: typeof import("../src/sharing/importing");

// The client takes the `fetch` that is there when it is loaded; another file's tests may have loaded it before.
beforeAll(async () => {
  vi.resetModules();
  vi.stubGlobal("fetch", (request: Request) => {
    server.sent.push(request);
    return Promise.resolve(Response.json(server.answers.shift()));
  });
  sharing = await import("../src/sharing/importing");
});
afterAll(() => {
  vi.unstubAllGlobals();
  vi.resetModules();
});

const DOT = Uint8Array.from(
  atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="),
  (sign) => sign.charCodeAt(0),
);

test("a picture carries a text, in any language, and stays a picture", () => {
  const made = withText(DOT, "tavern-workflow", '{"name":"问候"}');
  expect(isPng(made)).toBe(true);
  expect(new TextDecoder().decode(made)).toContain('iTXttavern-workflow\0\0\0\0\0{"name":"问候"}');
  // The sum that decoders check, as zlib computes it for these bytes.
  const short = withText(DOT, "a", "b");
  const at = short.length - 12 - 4;
  expect(new DataView(short.buffer).getUint32(at)).toBe(0x9f0c0442);
});

test("what is cut off or no picture is refused", () => {
  expect(() => withText(DOT.subarray(0, 40), "a", "b")).toThrow();
  expect(() => withText(new Uint8Array(20), "a", "b")).toThrow();
});

const STEPS = {
  kind: "comfyui",
  title: "ComfyUI workflow",
  things: [{ kind: "workflow", id: "a", page: "/workflows/a" }],
};

test("a file goes to the server as it is, which says what came and where it is shown", async () => {
  const { importFile, lastImport } = sharing;
  server.answers.push({ ...STEPS, nextSteps: ["replace them: tavern x"] }, STEPS);
  expect(await importFile(new File(["{}"], "图.json"))).toBe("/workflows/a");
  const [first] = server.sent;
  expect(new URL(first!.url).searchParams.get("name")).toBe("图.json");
  expect(await first!.text()).toBe("{}");
  expect(lastImport.value?.nextSteps).toEqual(["replace them: tavern x"]);
  lastImport.value = undefined;
  expect(await importFile(new File(["{}"], "b.yaml"))).toBe("/workflows/a");
  expect(lastImport.value).toBeUndefined();
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
