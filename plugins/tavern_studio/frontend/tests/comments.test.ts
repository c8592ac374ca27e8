import { expect, test } from "vitest";
import { addComment, changeComment, commentAt, onCanvas, removeComment } from "../src/editor/comments";

const empty = { nodes: [], edges: [] };

test("a comment is put, changed and removed, and earlier documents stay as they were", () => {
  const one = addComment(empty, { x: 3, y: 4 });
  const two = addComment(one, { x: 5, y: 6 });
  expect(two.comments?.map((note) => note.id)).toEqual(["note", "note-2"]);
  const changed = changeComment(two, "note", { text: "**why**" });
  expect(changed.comments?.[0]).toMatchObject({ text: "**why**", position: { x: 3, y: 4 } });
  expect(two.comments?.[0]?.text).toBe("");
  expect(removeComment(changed, "note").comments?.map((note) => note.id)).toEqual(["note-2"]);
  expect(empty).toEqual({ nodes: [], edges: [] });
});

test("what says nothing new is no step", () => {
  const one = addComment(empty, { x: 0, y: 0 });
  expect(changeComment(one, "note", { text: "" })).toBe(one);
  expect(changeComment(one, "none", { text: "x" })).toBe(one);
});

test("a comment and a node of the same id are two things on the canvas", () => {
  expect(commentAt(onCanvas("trim"))).toBe("trim");
  expect(commentAt("trim")).toBeUndefined();
  expect(commentAt("comment:trim")).toBeUndefined();
});
