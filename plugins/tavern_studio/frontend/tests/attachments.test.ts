import { expect, test } from "vitest";
import { attach, withTexts } from "../src/chat/attachments";

const file = (name: string, type: string, content = "x") => new File([content], name, { type });

test("pictures and texts go along, other files are refused with a word", () => {
  const { attachments, refused } = attach(
    [],
    [
      file("cat.png", "image/png"),
      file("notes.md", "text/markdown"),
      file("main.rs", ""),
      file("data", "application/json"),
      file("drawing.svg", "image/svg+xml"), // a text that a model reads
      file("photo.heic", "image/heic"),
      file("film.mp4", "video/mp4"),
      file("long.txt", "text/plain", "x".repeat(300_000)),
    ],
  );
  expect(attachments.map((one) => [one.name, one.isPicture])).toEqual([
    ["cat.png", true],
    ["notes.md", false],
    ["main.rs", false],
    ["data", false],
    ["drawing.svg", false],
  ]);
  expect(refused).toEqual([
    { name: "photo.heic", why: "chat.attach.kind" },
    { name: "film.mp4", why: "chat.attach.kind" },
    { name: "long.txt", why: "chat.attach.long" },
  ]);
});

test("a message has at most sixteen pictures", () => {
  const many = Array.from({ length: 18 }, (_, index) => file(`${index}.png`, "image/png"));
  expect(attach([], many).refused.map((one) => one.name)).toEqual(["16.png", "17.png"]);
});

test("a text stands under its name in a block that it cannot end", async () => {
  const { attachments } = attach([], [file("notes.md", "text/markdown", "a\n```js\nb\n```\n")]);
  expect(await withTexts("Read this.", attachments)).toBe("Read this.\n\nnotes.md\n````md\na\n```js\nb\n```\n````");
  expect(await withTexts("", attachments)).toMatch(/^notes\.md/);
});
