import { expect, test } from "vitest";
import { aligned, distributed } from "../src/editor/canvas/arranging";
import { grouped } from "../src/editor/canvas/menus";
import { edgePath } from "../src/editor/canvas/routing";
import { categoryLook, lookOf } from "../src/editor/looks";
import type { NodeDefinition } from "../src/editor/nodetypes";

const box = (id: string, x: number, y: number, width = 100, height = 60) => ({ id, x, y, width, height });
const ends = ["a", "b"] as const;

/** The points of a line of straight parts, without its round corners. */
function pointsOf(path: string): [number, number][] {
  return [...path.matchAll(/(-?[\d.]+),(-?[\d.]+)/g)].map((found) => [Number(found[1]), Number(found[2])]);
}

test("an edge with nothing in its way is a curve", () => {
  const path = edgePath({ x: 100, y: 30 }, { x: 400, y: 90 }, ends, [box("a", 0, 0), box("b", 400, 60)]);
  expect(path).toContain("C");
});

test("an edge goes around the node in its way, in right angles", () => {
  const middle = box("m", 200, 0, 100, 120);
  const path = edgePath({ x: 100, y: 60 }, { x: 400, y: 60 }, ends, [box("a", 0, 30), middle, box("b", 400, 30)]);
  expect(path).not.toContain("C");
  for (const [x, y] of pointsOf(path)) expect(x > 200 && x < 300 && y > 0 && y < 120, `${x},${y}`).toBe(false);
  expect(pointsOf(path).some(([, y]) => y < 0 || y > 120)).toBe(true);
});

test("an edge that leads back goes around its own nodes", () => {
  const boxes = [box("a", 400, 0), box("b", 0, 0)];
  const points = pointsOf(edgePath({ x: 500, y: 30 }, { x: 0, y: 30 }, ends, boxes));
  expect(points.some(([, y]) => y < 0 || y > 60)).toBe(true);
  expect(points.at(-1)).toEqual([0, 30]);
});

test("nodes are put in line at the outermost of their sides", () => {
  const boxes = [box("a", 10, 0), box("b", 50, 100, 200)];
  expect(Object.fromEntries(aligned(boxes, "left"))).toEqual({ a: { x: 10, y: 0 }, b: { x: 10, y: 100 } });
  expect(aligned(boxes, "right").get("a")).toEqual({ x: 150, y: 0 });
  expect(aligned(boxes, "top").get("b")).toEqual({ x: 50, y: 0 });
  expect(aligned(boxes, "bottom").get("a")).toEqual({ x: 10, y: 100 });
});

test("nodes get equal gaps, and the outer ones stay", () => {
  const boxes = [box("a", 0, 0), box("c", 500, 0), box("b", 110, 40)];
  expect(Object.fromEntries(distributed(boxes, "x"))).toEqual({
    a: { x: 0, y: 0 },
    b: { x: 250, y: 40 },
    c: { x: 500, y: 0 },
  });
  expect(distributed(boxes.slice(0, 2), "x").size).toBe(0);
});

test("a category has one look, in either language; another keeps its hue", () => {
  expect(categoryLook("Text/Case")).toEqual(categoryLook("文本"));
  expect(categoryLook("流程").hue).toBe("green");
  expect(categoryLook("Quux")).toEqual(categoryLook("Quux"));
});

test("a node type may name its icon", () => {
  const definition = { type: "Send", namespace: "acme", category: "Text" } as NodeDefinition;
  const named = lookOf({ ...definition, icon: "mail" });
  expect(named.icon).not.toBe(lookOf(definition).icon);
  expect(named.hue).toBe("blue");
  expect(lookOf({ ...definition, icon: "no such" }).icon).toBe(lookOf(definition).icon);
});

test("a menu has the commands for what is under the pointer in groups, and those of plugins", () => {
  const ids = ["editor.delete", "editor.runTo", "editor.add", "editor.reroute", "app.theme"];
  const commands = [...ids.map((id) => ({ id })), { id: "acme.stamp", inContext: true }];
  const read = (under: "node" | "edge" | "canvas") =>
    grouped(commands, under).map((group) => group.map(({ id }) => id));
  expect(read("node")).toEqual([["editor.runTo"], ["editor.delete"], ["acme.stamp"]]);
  expect(read("edge")).toEqual([["editor.reroute"], ["editor.delete"], ["acme.stamp"]]);
  expect(read("canvas")).toEqual([["editor.add"], ["acme.stamp"]]);
});
