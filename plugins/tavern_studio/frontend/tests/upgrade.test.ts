import { expect, test } from "vitest";
import { providerOf } from "../src/editor/providers";
import type { NodeDefinition } from "../src/editor/nodetypes";
import type { Slot, WorkflowDocument, WorkflowNode } from "../src/editor/document";
import { slotsOf, type Known } from "../src/editor/slots";
import { upgradeNodes } from "../src/editor/upgrade";

const text: Slot = { dataFlowType: "STRING" };
const number: Slot = { dataFlowType: "INTEGER" };
const define = (
  type: string,
  inputs: Record<string, Slot>,
  outputs: Record<string, Slot>,
  more = {},
): [string, NodeDefinition] => [`acme:${type}`, { type, namespace: "acme", category: "", inputs, outputs, ...more }];
const known: Known = {
  byType: new Map([
    define("Say", {}, { text, count: number }),
    define("Join", { texts: { ...text, multi: true }, separator: text, times: number }, { merged: text }),
    define(
      "Mode",
      { a: text },
      { text },
      { modes: { one: { inputs: { a: text } }, two: { inputs: { b: text } } }, defaultModeId: "one" },
    ),
  ]),
  group: () => null,
};
const node = (id: string, type: string, more: Partial<WorkflowNode> = {}): WorkflowNode => ({
  id,
  type,
  position: { x: 0, y: 0 },
  ...more,
});
const edge = (id: string, from: string, to: string) => {
  const [[source = "", sourceHandle = ""], [target = "", targetHandle = ""]] = [from.split("."), to.split(".")];
  return { id, source, sourceHandle, target, targetHandle };
};
const slotsIn = (document: WorkflowDocument, one: WorkflowNode) => slotsOf(one, document, known);
const ends = (document: WorkflowDocument) =>
  document.edges.map((one) => `${one.source}.${one.sourceHandle} ${one.target}.${one.targetHandle}`);
const of = (document: WorkflowDocument, id: string) => document.nodes.find((one) => one.id === id)!;

test("what edges and values name and a node lacks is gone", () => {
  const document: WorkflowDocument = {
    nodes: [
      node("say", "acme:Say", { policy: { onError: "route" } }),
      node("join", "acme:Join", { inputValues: { separator: ",", glue: ";", nothing: null } }),
      node("mode", "acme:Mode", { inputValues: { b: "of the other mode" } }),
      node("far", "other:Unknown", { inputValues: { x: 1 } }),
    ],
    edges: [
      edge("1", "say.words", "join.texts__0"),
      edge("2", "say.error", "join.Glue"),
      edge("3", "say.text", "far.what"),
    ],
  };
  expect(slotsIn(document, of(document, "say")).gone).toEqual({ inputs: [], outputs: ["words"], values: [] });
  expect(slotsIn(document, of(document, "join")).gone).toEqual({ inputs: ["Glue"], outputs: [], values: ["glue"] });
  expect(slotsIn(document, of(document, "mode")).gone).toBeUndefined();
  expect(slotsIn(document, of(document, "far")).gone).toBeUndefined(); // nobody knows what it has
});

test("upgrading follows names, then the only slot of a type", () => {
  const document: WorkflowDocument = {
    nodes: [
      node("a", "acme:Say"),
      node("b", "acme:Say"),
      node("join", "acme:Join", {
        inputValues: { Separator: "-", lost: [1] },
        inputConnectionOrders: { Texts: ["2", "1"] },
      }),
      node("end", "acme:Join"),
    ],
    edges: [
      edge("1", "a.text", "join.Texts__1"),
      edge("2", "b.text", "join.Texts__0"),
      edge("3", "a.count", "join.repetitions"),
      edge("4", "join.result", "end.separator"),
      edge("5", "join.none", "end.times"),
    ],
  };
  const { document: done, mapped, removed } = upgradeNodes(document, ["join"], slotsIn);
  expect(ends(done)).toEqual([
    "a.text join.texts__1",
    "b.text join.texts__0",
    "a.count join.times",
    "join.merged end.separator",
  ]);
  expect(of(done, "join").inputConnectionOrders).toEqual({ texts: ["2", "1"] });
  expect(of(done, "join").inputValues).toEqual({ separator: "-" });
  expect(mapped.map((one) => `${one.from} ${one.to}`)).toEqual([
    "Texts texts",
    "repetitions times",
    "result merged",
    "Separator separator",
  ]);
  expect(removed.map((one) => one.slot)).toEqual(["none", "lost"]);
  expect(slotsIn(done, of(done, "join")).gone).toBeUndefined();
  expect(document.edges).toHaveLength(5); // documents are never changed
});

test("what two would follow, or what is taken, nothing follows", () => {
  const nodes = [node("a", "acme:Say"), node("join", "acme:Join")];
  const two = { nodes, edges: [edge("1", "a.count", "join.x"), edge("2", "a.count", "join.y")] };
  expect(upgradeNodes(two, ["join"], slotsIn).document.edges).toEqual([]);
  const taken = { nodes, edges: [edge("1", "a.count", "join.times"), edge("2", "a.count", "join.Times")] };
  expect(ends(upgradeNodes(taken, ["join"], slotsIn).document)).toEqual(["a.count join.times"]);
  const valued = {
    nodes: [node("a", "acme:Say"), node("join", "acme:Join", { inputValues: { times: 3, glue: "+" } })],
    edges: [edge("1", "a.count", "join.x")],
  };
  const done = upgradeNodes(valued, ["join"], slotsIn).document;
  expect([done.edges, of(done, "join").inputValues]).toEqual([[], { times: 3 }]); // two inputs take a text
});

test("a missing type names its plugin, and what that waits for", () => {
  const plugin = (name: string, state: string, firstParty = false) =>
    ({ name, displayName: name, version: "1", state, firstParty }) as never;
  const plugins = [
    plugin("acme", "needs-review"),
    plugin("tavern-nodes", "started", true),
    plugin("tavern-llm", "failed", true),
  ];
  expect(providerOf("acme:Forecast", plugins)).toEqual({ name: "acme", state: "needs-review", version: "1" });
  expect(providerOf("core:Generate", plugins)?.name).toBe("tavern-llm");
  expect(providerOf("other:Thing", plugins)).toEqual({ name: "other", state: "absent" });
  expect(providerOf("core:Generate", plugins.slice(0, 2))).toBeUndefined();
});
