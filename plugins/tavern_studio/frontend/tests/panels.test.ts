import { expect, test, vi } from "vitest";
import { ApiError } from "../src/api/client";
import { newId } from "../src/panels/documents";
import { below, moved, nudged, settled, type Place } from "../src/panels/layout";
import { ElementRun, problemsOf } from "../src/panels/runs";

const at = (id: string, x: number, y: number, w = 6, h = 4): Place => ({ id, x, y, w, h });
const read = (places: Place[]) => places.map(({ id, x, y, w, h }) => `${id} ${x},${y} ${w}x${h}`);
const desk = [at("form", 0, 0), at("chat", 6, 0, 6, 8), at("note", 0, 4, 6, 2)];

test("elements rise until they stand below another, and are read from the top", () => {
  expect(read(settled([at("b", 0, 9), at("a", 0, 3), at("c", 6, 5)]))).toEqual(["a 0,0 6x4", "c 6,0 6x4", "b 0,4 6x4"]);
  expect(read(settled([at("a", 10, 0), at("b", 0, 0, 40, 0)]))).toEqual(["b 0,0 12x1", "a 6,1 6x4"]);
});

test("what stood where an element is put goes below it", () => {
  expect(read(moved(desk, at("note", 0, 0, 6, 2)))).toEqual(["note 0,0 6x2", "chat 6,0 6x8", "form 0,2 6x4"]);
  expect(read(moved(desk, at("form", 0, 0, 12, 4)))).toEqual(["form 0,0 12x4", "note 0,4 6x2", "chat 6,4 6x8"]);
});

test("arrow keys move and resize an element", () => {
  expect(read(nudged(desk, "note", "ArrowUp", false))[0]).toBe("note 0,0 6x2");
  expect(read(nudged(desk, "form", "ArrowDown", false))).toEqual(["note 0,0 6x2", "chat 6,0 6x8", "form 0,2 6x4"]);
  expect(read(nudged(desk, "form", "ArrowRight", false))).toEqual(["form 1,0 6x4", "note 0,4 6x2", "chat 6,4 6x8"]);
  expect(read(nudged(desk, "chat", "ArrowLeft", true))).toContain("chat 6,0 5x8");
  expect(read(nudged(desk, "chat", "ArrowRight", true))).toContain("chat 6,0 6x8");
  expect(read(nudged(desk, "note", "ArrowDown", true))).toContain("note 0,4 6x3");
  expect(nudged(desk, "nobody", "ArrowUp", false)).toBe(desk);
});

test("a new element stands below all others, under an id of its own", () => {
  expect(below(desk, { w: 12, h: 2 })).toEqual({ x: 0, y: 8, w: 12, h: 2 });
  expect(newId("agents/think it", ["think-it"])).toBe("think-it-2");
});

test("what is wrong with an input is said beside it", () => {
  const problems = [{ slot: "name", message: "is required" }, { message: "of the workflow" }];
  expect(problemsOf(new ApiError(400, "invalid_input", "", { problems }))).toEqual({ name: "is required" });
  expect(problemsOf(new ApiError(400, "invalid_input", "", { problems: "none" }))).toEqual({});
});

test("few runs have a stream, and the others are asked about", async () => {
  const opened: string[] = [];
  class Stream {
    static readonly CLOSED = 2;
    readyState = 1;
    constructor(url: string) {
      opened.push(url);
    }
    addEventListener(): void {}
    close(): void {}
  }
  vi.stubGlobal("EventSource", Stream);
  const run = (id: string) => ({
    id,
    element: "form",
    status: "running" as const,
    submittedAt: "2026-01-01T00:00:00Z",
  });
  const runs = ["a", "b", "c", "d", "e"].map((id) => {
    const one = new ElementRun("desk", "form");
    one.show(run(id));
    return one;
  });
  expect(opened.length).toBe(3);
  runs[0]!.close();
  runs[4]!.show(run("e"));
  expect(opened.length).toBe(4);
  runs.forEach((one) => one.close());
  vi.unstubAllGlobals();
});
