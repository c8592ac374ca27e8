import { slotsInMode, type NodeDefinition } from "./nodetypes";
import { findSlot, GROUP_INPUT, GROUP_OUTPUT, indexOf, LOOKS, LOOP, NODE_GROUP } from "./document";
import type { Slot, WorkflowDocument, WorkflowNode } from "./document";
import { loopOf } from "./loops";

/** The handles of a node: what enters and leaves it, and for a loop what its inside gives and takes. */
export interface Slots {
  inputs: Record<string, Slot>;
  outputs: Record<string, Slot>;
  /** Of a loop: outputs that stand inside of it, for its nodes. */
  innerOutputs: Record<string, Slot>;
  /** Of a loop: inputs that stand inside of it. */
  innerInputs: Record<string, Slot>;
  /** What the node's edges and values name that it does not have, or has no more; absent where there is nothing. */
  gone?: Gone;
}

export interface Gone {
  /** Handles at which edges end. */
  inputs: string[];
  /** Handles at which edges begin. */
  outputs: string[];
  /** Keys of `inputValues`. */
  values: string[];
}

/** The handle of `core:GroupInput` and `core:GroupOutput` that makes a slot of whatever is connected with it. */
export const NEW_SLOT = "+";

export interface Known {
  byType: Map<string, NodeDefinition>;
  group(id: string): WorkflowDocument | null | undefined;
}

/** Return the slots of a node, with those that only its edges name where it may have others. */
export function slotsOf(node: WorkflowNode, document: WorkflowDocument, known: Known): Slots {
  const { slots, isKnown, isDynamic } = derivedSlots(node, document, known);
  if (!isKnown || isDynamic) return withConnected(node, document, slots);
  const gone = goneOf(node, document, slots, known.byType.get(node.type));
  return gone.inputs.length + gone.outputs.length + gone.values.length ? { ...slots, gone } : slots;
}

/**
 * The slots of a node by its type, mode and configuration, its group or the workflow's interface; whether it is known
 * that it has these, and whether it has any others that are used (`tests/conformance`).
 */
export function derivedSlots(
  node: WorkflowNode,
  document: WorkflowDocument,
  known: Known,
): { slots: Slots; isKnown: boolean; isDynamic: boolean } {
  const of = (inputs: Slots["inputs"] = {}, outputs: Slots["outputs"] = {}, isKnown = true) => ({
    slots: { inputs, outputs, innerInputs: {}, innerOutputs: {} },
    isKnown,
    isDynamic: false,
  });
  if (node.type === GROUP_INPUT) return of({}, document.interfaceInputs);
  if (node.type === GROUP_OUTPUT) return of(document.interfaceOutputs);
  if (node.type === NODE_GROUP) {
    const group = known.group(groupReference(node));
    return of(group?.interfaceInputs, group?.interfaceOutputs, group != null);
  }
  const definition = known.byType.get(node.type);
  let found = of({}, {}, false);
  if (node.type === LOOP) found = { ...found, ...ofLoop(node, definition) };
  else if (definition === undefined) return found;
  else {
    const { inputs, outputs } = slotsInMode(definition, modeOf(node, definition));
    found = { ...of(inputs, outputs), isDynamic: Boolean(definition.dynamicSlots) };
  }
  if (node.policy?.onError === "route") found.slots.outputs = { error: ERROR, ...found.slots.outputs };
  return found;
}

const ERROR: Slot = { dataFlowType: "OBJECT", isBranch: true };

/** The id of the workflow that a group stands for; empty where it names none. */
export function groupReference({ configValues }: WorkflowNode): string {
  const reference = configValues?.referencedWorkflowId;
  return typeof reference === "string" ? reference : "";
}

/** Return what edges and values name that is not among the slots. The values of another mode wait for it. */
function goneOf(
  node: WorkflowNode,
  document: WorkflowDocument,
  slots: Slots,
  definition: NodeDefinition | undefined,
): Gone {
  const index = indexOf(document);
  const into = (index.into.get(node.id) ?? []).map((edge) => edge.targetHandle);
  const outOf = (index.outOf.get(node.id) ?? []).map((edge) => edge.sourceHandle);
  const modes = Object.values(definition?.modes ?? {}).map((mode) => mode.inputs ?? {});
  const known = Object.assign({}, definition?.inputs, ...modes, slots.inputs, slots.innerInputs) as Record<
    string,
    Slot
  >;
  return {
    inputs: [...new Set(into.filter((handle) => !findSlot(handle, { ...slots.inputs, ...slots.innerInputs })))],
    outputs: [
      ...new Set(outOf.filter((handle) => !Object.hasOwn({ ...slots.outputs, ...slots.innerOutputs }, handle))),
    ],
    values: valueKeys(node).filter((key) => !findSlot(key, known)),
  };
}

/** The inputs that a node has a value of its own for. */
export function valueKeys(node: WorkflowNode): string[] {
  return Object.entries(node.inputValues ?? {}).flatMap(([key, value]) => (value == null ? [] : [key]));
}

/** The mode that a node's configuration selects; null selects none. */
export function modeOf(node: Pick<WorkflowNode, "configValues">, definition: NodeDefinition): string | undefined {
  const key = definition.modeConfigKey;
  if (key == null) return definition.defaultModeId ?? undefined;
  const chosen =
    node.configValues?.[key] ?? definition.configValues?.[key] ?? definition.configSchema?.[key]?.config?.default;
  if (chosen == null) return definition.defaultModeId ?? undefined;
  return typeof chosen === "object" ? JSON.stringify(chosen) : String(chosen);
}

const INTEGER: Slot = { dataFlowType: "INTEGER" };
/** What every loop has. */
const OF_LOOPS: Record<string, Slot> = {
  index: INTEGER,
  iterations: INTEGER,
  stopped_by: { dataFlowType: "STRING" },
  log: { dataFlowType: "ARRAY" },
};

function ofLoop(node: WorkflowNode, definition: NodeDefinition | undefined): { slots: Slots; isKnown: boolean } {
  const { carried, perIteration, condition, isWhole } = loopOf(node);
  const { index = INTEGER, ...outputs }: Record<string, Slot> = { ...OF_LOOPS, ...definition?.outputs };
  const inputs: Record<string, Slot> = { count: INTEGER, ...definition?.inputs };
  const slots: Slots = { inputs, outputs, innerInputs: {}, innerOutputs: { index } };
  for (const { key, dataFlowType, initial } of carried) {
    const slot: Slot = { dataFlowType, displayName: key };
    slots.inputs[`in__${key}`] = initial == null ? slot : { ...slot, config: { default: initial } };
    slots.innerOutputs[`in__${key}`] = slots.innerInputs[`next__${key}`] = slots.outputs[`out__${key}`] = slot;
  }
  for (const { key, dataFlowType } of perIteration) {
    slots.innerInputs[`each__${key}`] = { dataFlowType, displayName: key };
    slots.outputs[`list__${key}`] = { dataFlowType: "ARRAY", displayName: key };
    slots.outputs[`stream__${key}`] = { dataFlowType, displayName: key, isStream: true };
  }
  if (condition !== undefined) slots.innerInputs[condition] = { dataFlowType: "BOOLEAN", displayName: condition };
  return { slots, isKnown: isWhole };
}

/** A node whose type is not there, or makes slots as they are used, has at least those that are connected. */
function withConnected(node: WorkflowNode, document: WorkflowDocument, slots: Slots): Slots {
  const index = indexOf(document);
  const inputs = { ...slots.inputs };
  const outputs = { ...slots.outputs };
  const any: Slot = { dataFlowType: "WILDCARD" };
  for (const edge of index.into.get(node.id) ?? []) {
    if (!findSlot(edge.targetHandle, { ...inputs, ...slots.innerInputs })) inputs[edge.targetHandle] = any;
  }
  for (const edge of index.outOf.get(node.id) ?? []) {
    if (!Object.hasOwn({ ...outputs, ...slots.innerOutputs }, edge.sourceHandle)) outputs[edge.sourceHandle] = any;
  }
  return { ...slots, inputs, outputs };
}

const WILD = new Set(["WILDCARD", "CONVERTIBLE_ANY"]);
const CONVERTED: Record<string, string[]> = { FLOAT: ["INTEGER"], STRING: ["INTEGER", "FLOAT", "BOOLEAN"] };

/** Say why an output may not feed an input, as the key of a message; undefined where it may. */
export function refusal(source: Slot, target: Slot): string | undefined {
  if (target.isStream && !source.isStream) return "editor.refused.stream";
  if (source.isStream && !target.isStream && target.dataFlowType === "ARRAY") return undefined; // the list of its items
  const [from, to] = [source.matchCategories ?? [], target.matchCategories ?? []];
  if (from.includes("BehaviorWildcard") || to.includes("BehaviorWildcard")) return undefined;
  if (from.some((one) => to.includes(one))) return undefined;
  if (source.dataFlowType === target.dataFlowType) return undefined;
  if (WILD.has(source.dataFlowType) || WILD.has(target.dataFlowType)) return undefined;
  if (CONVERTED[target.dataFlowType]?.includes(source.dataFlowType)) return undefined;
  return "editor.refused.type";
}

/** The name of a slot as people read it. */
export function slotName(slot: Slot | undefined, key: string): string {
  return slot?.displayName || key;
}

/** How a slot is drawn: a shape and a colour for each family of types. */
export function slotLook(slot: Slot) {
  return LOOKS[slot.dataFlowType] ?? "any";
}
