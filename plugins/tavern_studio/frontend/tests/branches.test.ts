import { expect, test } from "vitest";
import { rowsOf } from "../src/chat/branches";
import type { Schemas } from "../src/api/client";

const node = (id: string, parentId?: string) => ({ id, parentId, role: "user", text: id }) as Schemas["HistoryNode"];
const read = (tree: Schemas["HistoryNode"][]) => rowsOf(tree).map(({ node: { id }, level }) => `${id}${level}`);

test("a tree is read message by message, and versions are a level deeper, each with what follows it", () => {
  const tree = [node("a"), node("b", "a"), node("c", "b"), node("b2", "a"), node("d", "b2")];
  expect(read(tree)).toEqual(["a0", "b1", "c1", "b21", "d1"]);
});

test("messages whose parents were left out begin again, and depth is no limit", () => {
  expect(read([node("x", "gone")])).toEqual(["x0"]);
  const deep = Array.from({ length: 20_000 }, (_, index) => node(`n${index}`, index ? `n${index - 1}` : undefined));
  expect(rowsOf(deep).at(-1)?.node.id).toBe("n19999");
});
