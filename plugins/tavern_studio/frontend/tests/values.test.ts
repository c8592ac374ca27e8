import { expect, test } from "vitest";
import PlainValue from "../src/kit/values/PlainValue.vue";
import { plainOf } from "../src/kit/values/ValuePart";
import { blobOf, inLine, seenAs } from "../src/kit/values/seen";

const blob = { type: "blob", hash: "ab12", mediaType: "image/png", length: 48213 };

test.each([
  ["Hello", "text"],
  ["data:image/png;base64,iVBO", "image"],
  ["data:text/html;base64,PGI+", "text"],
  [3.5, "number"],
  [false, "number"],
  [blob, "image"],
  [{ ...blob, mediaType: "audio/ogg" }, "audio"],
  [{ ...blob, mediaType: "model/gltf" }, "file"],
  [[1, 2, 3, 4], "plot"],
  [[1, 2, 3], "json"],
  [[1, 2, 3, "4"], "json"],
  [[{ city: "Oslo", units: 3 }, { city: "Quito" }], "table"],
  [
    [
      [1, 2],
      [3, 4],
    ],
    "table",
  ],
  [[[1, 2], [3]], "json"],
  [[{}], "json"],
  [{ type: "blob" }, "json"],
])("%j is seen as %s", (value, kind) => {
  expect(seenAs(value)?.kind).toBe(kind);
});

test("nothing is seen as nothing", () => {
  expect([seenAs(null), seenAs(undefined)]).toEqual([undefined, undefined]);
});

test("records lack what they lack, in the columns of all", () => {
  const rows = [{ city: "Oslo" }, { units: 3, city: "Quito" }];
  expect(seenAs(rows)).toEqual({
    kind: "table",
    columns: ["city", "units"],
    rows: [
      ["Oslo", undefined],
      ["Quito", 3],
    ],
  });
});

test("a Blob has its length, and is asked for as what it is", () => {
  const seen = seenAs(blob);
  expect(seen).toMatchObject({ mediaType: "image/png", length: 48213 });
  expect((seen as { url: string }).url).toMatch(/\/api\/blobs\/ab12\?.*mediaType=image%2Fpng/);
  expect(blobOf({ ...blob, hash: 3 })).toBeUndefined();
});

test("a value in a line is cut, and a number is short", () => {
  expect([inLine("abcdef", 3), inLine({ a: 1 }), inLine(10.857142857)]).toEqual(["abc…", '{"a":1}', "10.8571"]);
});

test("text in Markdown is shown as that, where there is room", () => {
  const isPlain = (value: unknown, category: string, compact = false) =>
    plainOf(value, [category], compact) === PlainValue;
  expect(isPlain("# Title", "Markdown")).toBe(false);
  expect(isPlain("# Title", "LlmOutput")).toBe(false);
  expect(isPlain("# Title", "Prompt")).toBe(true);
  expect(isPlain("# Title", "Markdown", true)).toBe(true);
  expect(isPlain("data:image/png;base64,iVBO", "Markdown")).toBe(true);
  expect(isPlain({ a: 1 }, "Markdown")).toBe(true);
});
