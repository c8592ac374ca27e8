import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  findSlot,
  loopAround,
  nodeOf,
  orderOf,
  type Slot,
  type WorkflowDocument,
  type WorkflowNode,
} from "../src/editor/document";
import { edgeProblem } from "../src/editor/edges";
import { conditionProblem, nameProblem } from "../src/editor/loops";
import { fullType, type NodeDefinition } from "../src/editor/nodetypes";
import { missingInputs } from "../src/editor/runinputs";
import { derivedSlots, refusal, slotsOf } from "../src/editor/slots";

/** The rules of workflows as the host has them: see `tests/conformance/vectors.py`. */
function vectors<T>(name: string): T {
  const folder = join(import.meta.dirname, "../../../../tests/conformance");
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as T;
}

/** Expect the same of every case, and show each that is other. */
function all<T>(cases: T[], found: (one: T) => unknown, expected: (one: T) => unknown): void {
  expect(cases.length).toBeGreaterThan(0);
  const of = (what: (one: T) => unknown) => cases.map((one) => ({ case: one, is: what(one) }));
  expect(of(found)).toEqual(of(expected));
}

test("the same edges are possible", () => {
  const { slots, verdicts } = vectors<{ slots: Slot[]; verdicts: string[] }>("slot_pairs");
  const letters: Record<string, string> = { "editor.refused.stream": "s", "editor.refused.type": "t" };
  const verdict = (source: Slot) => slots.map((target) => letters[refusal(source, target) ?? ""] ?? ".").join("");
  all(
    slots.map((slot, index) => ({ slot, index })),
    ({ slot }) => verdict(slot),
    ({ index }) => verdicts[index],
  );
});

const node = (more: Partial<WorkflowNode>): WorkflowNode => ({
  id: "n",
  type: "acme:N",
  position: { x: 0, y: 0 },
  ...more,
});

test("a handle names the same slot", () => {
  type Row = { handle: string; isDynamic: boolean; input: [string, number | null] | null; isOutput: boolean };
  const { slots, rows } = vectors<{ slots: Record<string, Slot>; rows: Row[] }>("handles");
  const found = ({ handle, isDynamic }: Row) => {
    const definition = { type: "N", namespace: "acme", inputs: slots, outputs: slots, dynamicSlots: isDynamic };
    const edge = { id: "e", source: "n", sourceHandle: handle, target: "n", targetHandle: handle };
    const document = { nodes: [node({})], edges: handle ? [edge] : [] };
    const known = { byType: new Map([["acme:N", definition as NodeDefinition]]), group: () => null };
    const has = slotsOf(document.nodes[0]!, document, known);
    const slot = findSlot(handle, has.inputs);
    return { input: slot ? [slot.key, slot.place ?? null] : null, isOutput: Object.hasOwn(has.outputs, handle) };
  };
  all(rows, found, ({ input, isOutput }) => ({ input, isOutput }));
});

test("edges into an input for several are in the same order", () => {
  type Case = { slots: Record<string, Slot>; handles: string[]; order: string[]; counts: string[] };
  const found = ({ slots, handles, order }: Case) => {
    const edges = handles.map((targetHandle, index) => ({
      ...{ id: `e${index}`, source: "s", sourceHandle: "text" },
      ...{ target: "n", targetHandle },
    }));
    const document = { nodes: [node({ inputConnectionOrders: order.length ? { k: order } : {} })], edges };
    return orderOf(document, "n", "k", slots);
  };
  all(vectors<{ cases: Case[] }>("edge_orders").cases, found, (one) => one.counts);
});

interface Derived {
  definitions: NodeDefinition[];
  groups: Record<string, WorkflowDocument>;
  interface: Partial<WorkflowDocument>;
  cases: ({ node: WorkflowNode; isKnown: boolean; isDynamic: boolean } & Record<(typeof SIDES)[number], unknown>)[];
}
const SIDES = ["inputs", "outputs", "innerInputs", "innerOutputs"] as const;
const FACETS = ["dataFlowType", "isStream", "multi", "required", "matchCategories", "isBranch"];

/** What of slots something follows from. */
function bare(slots: Record<string, Slot>): unknown {
  const of = (slot: Slot) => {
    const facets = FACETS.flatMap((facet) => (slot[facet] ? [[facet, slot[facet]]] : []));
    const value = slot.config?.default;
    return Object.fromEntries(value == null ? facets : [...facets, ["default", value]]) as unknown;
  };
  return Object.fromEntries(Object.entries(slots).map(([key, slot]) => [key, of(slot)]));
}

describe.each(["derived_slots", "modes", "groups", "loops"])("the same slots follow: %s", (name) => {
  const { definitions, groups, interface: ends, cases } = vectors<Derived>(name);
  test.each([true, false])("of each node, where those of tavern-nodes are there: %s", (isWhole) => {
    const there = definitions.filter((one) => isWhole || one.namespace !== "core");
    const known = { byType: new Map(there.map((one) => [fullType(one), one])), group: (id: string) => groups[id] };
    const found = ({ node }: Derived["cases"][number]) => {
      const { slots, isKnown, isDynamic } = derivedSlots(node, { nodes: [node], edges: [], ...ends }, known);
      return { isKnown, isDynamic, ...Object.fromEntries(SIDES.map((side) => [side, bare(slots[side])])) };
    };
    all(cases, found, ({ node: _node, ...expected }) => expected);
  });
});

test("the same edges may cross the borders of loops", () => {
  type Borders = { definitions: NodeDefinition[]; nodes: WorkflowNode[] } & Record<
    "outputs" | "inputs" | "verdicts",
    string[]
  >;
  const { definitions, nodes, outputs, inputs, verdicts } = vectors<Borders>("borders");
  const known = { byType: new Map(definitions.map((one) => [fullType(one), one])), group: () => null };
  const document = { nodes, edges: [] };
  const slots = (id: string) => slotsOf(nodeOf(document, id)!, document, known);
  const verdict = (output: string, input: string) => {
    const [[source = "", sourceHandle = ""], [target = "", targetHandle = ""]] = [output.split("."), input.split(".")];
    return edgeProblem(document, { source, sourceHandle, target, targetHandle }, slots) === undefined ? "." : "x";
  };
  all(
    outputs.map((output, index) => ({ output, index })),
    ({ output }) => inputs.map((input) => verdict(output, input)).join(""),
    ({ index }) => verdicts[index],
  );
});

test("nodes lie in the same loops", () => {
  type Case = { nodes: WorkflowNode[]; within: Record<string, string> };
  const found = ({ nodes }: Case) => {
    const around = nodes.map(({ id }) => [id, loopAround({ nodes, edges: [] }, id)]);
    return Object.fromEntries(around.filter(([, loop]) => loop !== undefined)) as unknown;
  };
  all(vectors<{ cases: Case[] }>("zones").cases, found, (one) => one.within);
});

describe("the same is refused", () => {
  type Name = { name: string; isAllowed: boolean };
  type Missing = { interfaceInputs: Record<string, Slot>; values: Record<string, unknown>; missing: string[] };
  const { variables, conditions, missing } = vectors<
    Record<"variables" | "conditions", Name[]> & { missing: Missing[] }
  >("checks");
  test("names in loops", () => {
    all(
      variables,
      ({ name }) => nameProblem(name, []) === undefined,
      (one) => one.isAllowed,
    );
    all(
      conditions,
      ({ name }) => conditionProblem(name) === undefined,
      (one) => one.isAllowed,
    );
  });
  test("inputs without a value", () => {
    const found = ({ interfaceInputs, values }: Missing) =>
      missingInputs({ nodes: [], edges: [], interfaceInputs }, values);
    all(missing, found, (one) => one.missing);
  });
});
