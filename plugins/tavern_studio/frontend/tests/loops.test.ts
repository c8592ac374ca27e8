import { expect, test } from "vitest";
import type { NodeDefinition } from "../src/editor/nodetypes";
import type { Slot, WorkflowDocument, WorkflowNode } from "../src/editor/document";
import {
  addVariable,
  changeVariable,
  nameCondition,
  nameProblem,
  removeVariable,
  renameVariable,
  variablesOf,
} from "../src/editor/loops";
import { changeMode, modeChoice } from "../src/editor/modes";
import { slotsOf } from "../src/editor/slots";
import { assignZones, enclose, leastSize, zoneSize } from "../src/editor/zones";

const node = (id: string, more: Partial<WorkflowNode> = {}): WorkflowNode => ({
  id,
  type: "core:Text",
  position: { x: 0, y: 0 },
  ...more,
});
const edge = (source: string, sourceHandle: string, target: string, targetHandle: string) => ({
  id: `${source}-${target}-${targetHandle}`,
  source,
  sourceHandle,
  target,
  targetHandle,
});
const size = () => ({ width: 200, height: 100 });

const looped: WorkflowDocument = {
  nodes: [
    node("loop", {
      type: "core:LoopZone",
      position: { x: 100, y: 100 },
      width: 600,
      height: 300,
      configValues: { carried: [{ key: "n", dataFlowType: "INTEGER", initial: 1 }], conditionSlot: "done" },
      inputValues: { in__n: 4 },
    }),
    node("in", { parentNode: "loop", position: { x: 150, y: 60 } }),
    node("out", { position: { x: 900, y: 100 } }),
  ],
  edges: [
    edge("loop", "in__n", "in", "text"),
    edge("in", "text", "loop", "next__n"),
    edge("in", "is", "loop", "done"),
    edge("loop", "out__n", "out", "text"),
  ],
};
const zone = (of: WorkflowDocument) => of.nodes.find((one) => one.id === "loop")!;
const ends = (of: WorkflowDocument) => of.edges.map((one) => `${one.sourceHandle}>${one.targetHandle}`);

test("a variable that is renamed keeps its edges and values", () => {
  const renamed = renameVariable(looped, "loop", "carried", "n", "count_of");
  expect(ends(renamed)).toEqual(["in__count_of>text", "text>next__count_of", "is>done", "out__count_of>text"]);
  expect(zone(renamed).inputValues).toEqual({ in__count_of: 4 });
  expect(variablesOf(zone(renamed), "carried")).toEqual([{ key: "count_of", dataFlowType: "INTEGER", initial: 1 }]);
});

test("variables are added under free names, changed, and removed with their edges", () => {
  const two = addVariable(addVariable(looped, "loop", "perIteration"), "loop", "perIteration");
  expect(variablesOf(zone(two), "perIteration").map((one) => one.key)).toEqual(["value", "value_2"]);
  const changed = changeVariable(two, "loop", "perIteration", "value", { dataFlowType: "ARRAY" });
  const slots = slotsOf(zone(changed), changed, { byType: new Map(), group: () => null });
  expect(slots.innerInputs.each__value?.dataFlowType).toBe("ARRAY");
  expect(slots.inputs.in__n?.config?.default).toBe(1);
  expect(ends(removeVariable(looped, "loop", "carried", "n"))).toEqual(["is>done"]);
  expect([nameProblem("a__b", []), nameProblem("", []), nameProblem("a", ["a"]), nameProblem("b", ["a"])]).toEqual([
    "loop.badName",
    "loop.badName",
    "loop.taken",
    undefined,
  ]);
});

test("the condition is renamed with its edge, or taken away", () => {
  expect(ends(nameCondition(looped, "loop", "enough"))).toContain("is>enough");
  const without = nameCondition(looped, "loop", "");
  expect(ends(without)).toEqual(["in__n>text", "text>next__n", "out__n>text"]);
  expect(zone(without).configValues).not.toHaveProperty("conditionSlot");
});

test("nodes that are moved go into zones and out of them, where they are", () => {
  const into = assignZones(looped, new Map([["out", { x: 400, y: 250 }]]), size);
  expect(into.nodes.find((one) => one.id === "out")).toMatchObject({
    parentNode: "loop",
    position: { x: 300, y: 150 },
  });
  const out = assignZones(looped, new Map([["in", { x: 700, y: 60 }]]), size);
  expect(out.nodes.find((one) => one.id === "in")).toMatchObject({ parentNode: null, position: { x: 800, y: 160 } });
  const end = { nodes: [zone(looped), node("end", { type: "core:GroupOutput" })], edges: [] };
  expect(
    assignZones(end, new Map([["end", { x: 300, y: 200 }]]), size).nodes.find((one) => one.id === "end")?.parentNode,
  ).toBeUndefined();
});

test("a zone grows around what lies in it, on all sides, and shrinks no further", () => {
  const right = assignZones(looped, new Map([["in", { x: 480, y: 240 }]]), size);
  expect(zoneSize(zone(right))).toEqual({ width: 810, height: 360 });
  const left = assignZones(looped, new Map([["in", { x: 30, y: 10 }]]), size);
  expect(zone(left)).toMatchObject({ position: { x: 0, y: 60 }, width: 700, height: 340 });
  expect(left.nodes.find((one) => one.id === "in")?.position).toEqual({ x: 130, y: 50 });
  expect(leastSize(looped, "loop", size).width).toBe(480);
  expect(enclose(looped, "loop", size)).toBe(looped);
  const outer = {
    ...looped,
    nodes: [
      node("outer", { type: "core:LoopZone", width: 800, height: 500 }),
      ...looped.nodes.map((one) => (one.id === "loop" ? { ...one, parentNode: "outer" } : one)),
    ],
  };
  const grown = assignZones(outer, new Map([["in", { x: 480, y: 60 }]]), size);
  expect(zoneSize(grown.nodes.find((one) => one.id === "outer"))).toEqual({ width: 1070, height: 500 });
});

const number: Slot = { dataFlowType: "FLOAT" };
const definition = {
  type: "Calculate",
  namespace: "core",
  category: "",
  inputs: {},
  outputs: {},
  defaultModeId: "add",
  modeConfigKey: "operation",
  modes: {
    add: {
      id: "add",
      displayName: "Add",
      inputs: { a: number, b: number, clamp: { dataFlowType: "BOOLEAN" } },
      outputs: { result: number },
    },
    power: {
      id: "power",
      inputs: { base: number, exponent: number, clamp: { dataFlowType: "BOOLEAN" } },
      outputs: { result: number },
    },
    none: { id: "none", inputs: {}, outputs: {} },
  },
} as NodeDefinition;

test("a mode is chosen by name, and edges go to the slots in the place of theirs", () => {
  expect(modeChoice(definition)).toMatchObject({
    key: "operation",
    slot: {
      config: {
        default: "add",
        suggestions: [{ value: "add", label: "Add" }, { value: "power", label: "power" }, { value: "none" }],
      },
    },
  });
  const document: WorkflowDocument = {
    nodes: [node("a"), node("sum", { type: "core:Calculate", inputValues: { b: 2, clamp: true } })],
    edges: [edge("a", "x", "sum", "a"), edge("sum", "result", "a", "y")],
  };
  const power = changeMode(document, "sum", definition, "power");
  expect(ends(power)).toEqual(["x>base", "result>y"]);
  expect(power.nodes[1]).toMatchObject({
    inputValues: { exponent: 2, clamp: true },
    configValues: { operation: "power" },
  });
  const none = changeMode(power, "sum", definition, "none");
  expect([ends(none), none.nodes[1]?.inputValues]).toEqual([ends(power), power.nodes[1]?.inputValues]); // nothing is lost
});
