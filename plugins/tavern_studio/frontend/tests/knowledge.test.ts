import { expect, it } from "vitest";
import { baseIdOf, fieldsOf, titleOf, withFields, type Entry } from "../src/knowledge/entries";

const ENTRY = {
  id: "dragon",
  entry_type: "lore_detail",
  displayName: "Dragon",
  content: { value: "Red.", mime_type: "text/plain", path: "a.png" },
  activation_criteria: { keywords: ["scales"], trigger_probability: 0.5 },
  usage_metadata: { priority: 10, depth_offset: 2 },
  management_metadata: { tags: ["creature"], is_enabled: false, author_notes: "mine" },
  extensions: { other: { x: 1 } },
} as unknown as Entry;

it("keeps all of an entry that the form does not show", () => {
  expect(withFields(ENTRY, fieldsOf(ENTRY))).toEqual(ENTRY);
  const changed = withFields(ENTRY, { ...fieldsOf(ENTRY), text: "Green.", isEnabled: true });
  expect(changed).toEqual({
    ...ENTRY,
    content: { ...ENTRY.content, value: "Green." },
    management_metadata: { ...ENTRY.management_metadata, is_enabled: true },
  });
});

it("makes an entry of nothing", () => {
  expect(withFields({}, { ...fieldsOf({}), text: "Hello" })).toMatchObject({
    displayName: null,
    entry_type: "fact",
    content: { value: "Hello" },
    management_metadata: { is_enabled: true },
  });
});

it("calls an entry by its name or its text", () => {
  expect([titleOf(ENTRY), titleOf({ content: { value: " a\n b " } }), titleOf({ id: "x" })]).toEqual([
    "Dragon",
    "a b",
    "x",
  ]);
  expect(titleOf({ content: { value: "long ".repeat(40) } })).toHaveLength(60);
});

it("names the file of a base after it", () => {
  expect([baseIdOf(" Lore of: the Valley! "), baseIdOf("山谷 传说"), baseIdOf("../x")]).toEqual([
    "lore-of-the-valley",
    "山谷-传说",
    "x",
  ]);
});
