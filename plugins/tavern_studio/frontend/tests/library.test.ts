import { createPinia, setActivePinia } from "pinia";
import { beforeEach, expect, test } from "vitest";
import type { Slot } from "../src/editor/document";
import { tagsOf, useLibrary, usedFirst } from "../src/editor/library";
import { isTest, type NodeDefinition } from "../src/editor/nodetypes";
import { searchNodes } from "../src/editor/search";

const type = (name: string, more: Partial<NodeDefinition> = {}): NodeDefinition => ({
  type: name,
  namespace: "core",
  category: "Text",
  displayName: name,
  inputs: {},
  outputs: {},
  ...more,
});

const trim = type("Trim", { displayName: "Trim", description: "Cuts spaces.", texts: { zh: { Trim: "去除空白" } } });
const merge = type("TextMerge", { displayName: "Merge texts", category: "Lists" });
const names = (words: string) => searchNodes([trim, merge], words).map((one) => one.type);

beforeEach(() => {
  localStorage.clear();
  setActivePinia(createPinia());
});

test("all words have to be there, in any order and language", () => {
  expect(names("texts merge")).toEqual(["TextMerge"]);
  expect(names("lists text")).toEqual(["TextMerge"]);
  expect(names("空白 trim")).toEqual(["Trim"]);
  expect(names("qckb")).toEqual(["Trim"]);
  expect(names("texts spaces")).toEqual([]);
});

test("nodes for tests are told in every language, and not found", () => {
  const those = [
    type("TestAll"),
    type("Chat", { category: "TEST-LLM" }),
    type("Other", { tags: ["test"] }),
    type("Latest"),
  ];
  expect(those.map(isTest)).toEqual([true, true, true, false]);
  expect(searchNodes([{ ...trim, isTest: true }, merge], "")).toEqual([merge]);
});

test("tags are those of a type, and what its slots show", () => {
  const slot: Slot = { dataFlowType: "STRING", config: { widget: "model-picker" } };
  const made = type("Ask", {
    namespace: "acme",
    tags: ["chat"],
    inputs: { model: slot },
    outputs: { text: { dataFlowType: "STRING", isStream: true } },
  });
  expect(tagsOf(made)).toEqual(["chat", "stream", "model", "acme"]);
  expect(searchNodes([made], "chat stream")).toEqual([made]);
});

test("favourites and what was used last stay in the browser", () => {
  const library = useLibrary();
  library.toggle("core:Trim");
  for (const one of ["a", "b", "c", "d", "e", "f", "b", "g"]) library.used(one);
  expect(library.recent).toEqual(["g", "b", "f", "e", "d", "c"]);
  setActivePinia(createPinia());
  expect([useLibrary().favourites, useLibrary().recent[0]]).toEqual([["core:Trim"], "g"]);
  expect(usedFirst([merge, trim])).toEqual([trim, merge]);
  useLibrary().toggle("core:Trim");
  expect(useLibrary().favourites).toEqual([]);
});
