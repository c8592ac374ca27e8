import { expect, test } from "vitest";
import { grantsOf } from "../src/plugins/history";

const entry = (action: string, actor: string, ...permissions: string[]) =>
  ({ action, actor, time: `${actor}'s time`, details: permissions.length ? { permissions } : {} }) as never;

test("who granted a permission last is known, and nobody once it was revoked", () => {
  const entries = [
    entry("plugin.granted", "user:ann", "a", "b"),
    entry("plugin.upgraded", "user:ann"),
    entry("plugin.granted", "user:bob", "b"),
  ];
  expect([...grantsOf(entries)].map(([name, { actor }]) => [name, actor])).toEqual([
    ["a", "user:ann"],
    ["b", "user:bob"],
  ]);
  expect(grantsOf([...entries, entry("plugin.revoked", "user:bob")]).size).toBe(0);
});
