import { expect, test } from "vitest";
import { serverEvents } from "../src/plugins/calls";
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

test("events of a server are read whole, however they are cut", async () => {
  const sent = 'event: output\ndata: {"kind":"entry","data":{"name":"é"}}\n\n:\n\nevent: end\ndata: {}\n\n';
  const bytes = new TextEncoder().encode(sent);
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let at = 0; at < bytes.length; at += 7) controller.enqueue(bytes.slice(at, at + 7));
      controller.close();
    },
  });
  const seen = [];
  for await (const event of serverEvents(stream)) seen.push(event);
  expect(seen).toEqual([
    ["output", { kind: "entry", data: { name: "é" } }],
    ["end", {}],
  ]);
});
