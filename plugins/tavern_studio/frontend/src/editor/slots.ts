import type { NodeDefinition } from "./nodetypes";
import {
  GROUP_INPUT,
  GROUP_OUTPUT,
  indexOf,
  LOOP,
  NODE_GROUP,
  slotKey,
  type Slot,
  type WorkflowDocument,
  type WorkflowNode,
} from "./document";
import { variablesOf } from "./loops";

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

/** Return the slots of a node: those of its type, mode, configuration, group or of the workflow's interface. */
export function slotsOf(node: WorkflowNode, document: WorkflowDocument, known: Known): Slots {
  const definition = known.byType.get(node.type);
  const slots: Slots = { inputs: {}, outputs: {}, innerInputs: {}, innerOutputs: {} };
  let isCertain = definition !== undefined && !definition.dynamicSlots;
  if (node.type === GROUP_INPUT || node.type === GROUP_OUTPUT) isCertain = true;
  if (node.type === GROUP_INPUT) slots.outputs = document.interfaceInputs ?? {};
  else if (node.type === GROUP_OUTPUT) slots.inputs = document.interfaceOutputs ?? {};
  else if (node.type === NODE_GROUP) {
    const group = known.group(String(node.configValues?.referencedWorkflowId ?? ""));
    slots.inputs = group?.interfaceInputs ?? {};
    slots.outputs = group?.interfaceOutputs ?? {};
    isCertain = group != null;
  } else if (definition !== undefined) {
    const mode = definition.modes?.[String(modeOf(node, definition))];
    slots.inputs = mode?.inputs ?? definition.inputs;
    slots.outputs = mode?.outputs ?? definition.outputs;
  }
  if (node.type === LOOP) addLoopSlots(node, slots);
  if (definition !== undefined && isRouted(node))
    slots.outputs = { error: { dataFlowType: "OBJECT" }, ...slots.outputs };
  if (!isCertain) return withConnected(node, document, slots);
  const gone = goneOf(node, document, slots, definition);
  return gone.inputs.length + gone.outputs.length + gone.values.length ? { ...slots, gone } : slots;
}

/** Whether a node's policy gives its errors to an output of their own. */
function isRouted(node: WorkflowNode): boolean {
  return (node.policy as { onError?: string } | null | undefined)?.onError === "route";
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
    inputs: [
      ...new Set(
        into.filter((handle) => !(slotKey(handle, slots.inputs) in slots.inputs) && !(handle in slots.innerInputs)),
      ),
    ],
    outputs: [...new Set(outOf.filter((handle) => !(handle in slots.outputs) && !(handle in slots.innerOutputs)))],
    values: valueKeys(node).filter((key) => !(slotKey(key, known) in known)),
  };
}

/** The inputs that a node has a value of its own for. */
export function valueKeys(node: WorkflowNode): string[] {
  return Object.entries(node.inputValues ?? {}).flatMap(([key, value]) => (value == null ? [] : [key]));
}

export function modeOf(node: WorkflowNode, definition: NodeDefinition): unknown {
  return node.configValues?.[definition.modeConfigKey ?? "mode"] ?? definition.defaultModeId;
}

function addLoopSlots(node: WorkflowNode, slots: Slots): void {
  const { index = { dataFlowType: "INTEGER" }, ...outside } = slots.outputs;
  slots.inputs = { ...slots.inputs };
  slots.outputs = outside;
  slots.innerOutputs = { index };
  for (const { key, dataFlowType = "WILDCARD", initial } of variablesOf(node, "carried")) {
    slots.inputs[`in__${key}`] = { dataFlowType, displayName: key, config: { default: initial } };
    slots.innerOutputs[`in__${key}`] = { dataFlowType, displayName: key };
    slots.innerInputs[`next__${key}`] = { dataFlowType, displayName: key };
    slots.outputs[`out__${key}`] = { dataFlowType, displayName: key };
  }
  for (const { key, dataFlowType = "WILDCARD" } of variablesOf(node, "perIteration")) {
    slots.innerInputs[`each__${key}`] = { dataFlowType, displayName: key };
    slots.outputs[`list__${key}`] = { dataFlowType: "ARRAY", displayName: key };
    slots.outputs[`stream__${key}`] = { dataFlowType, displayName: key, isStream: true };
  }
  const condition = node.configValues?.conditionSlot;
  if (typeof condition === "string" && condition) {
    slots.innerInputs[condition] = { dataFlowType: "BOOLEAN", displayName: condition };
  }
}

/** A node whose type is not there, or makes slots as they are used, has at least those that are connected. */
function withConnected(node: WorkflowNode, document: WorkflowDocument, slots: Slots): Slots {
  const index = indexOf(document);
  const inputs = { ...slots.inputs };
  const outputs = { ...slots.outputs };
  const any: Slot = { dataFlowType: "WILDCARD" };
  for (const edge of index.into.get(node.id) ?? []) {
    const key = edge.targetHandle.replace(/__\d+$/, "");
    if (edge.targetHandle in slots.innerInputs || key in inputs || edge.targetHandle in inputs) continue;
    inputs[edge.targetHandle] = any;
  }
  for (const edge of index.outOf.get(node.id) ?? []) {
    if (!(edge.sourceHandle in outputs) && !(edge.sourceHandle in slots.innerOutputs)) outputs[edge.sourceHandle] = any;
  }
  return { ...slots, inputs, outputs };
}

const WILD = new Set(["WILDCARD", "CONVERTIBLE_ANY"]);
const CONVERTED: Record<string, string[]> = { FLOAT: ["INTEGER"], STRING: ["INTEGER", "FLOAT", "BOOLEAN"] };

/** Say why an output may not feed an input, as the key of a message; undefined where it may. */
export function refusal(source: Slot, target: Slot): string | undefined {
  if (target.isStream && !source.isStream) return "editor.refused.stream";
  const [from, to] = [source.matchCategories ?? [], target.matchCategories ?? []];
  if (from.includes("BehaviorWildcard") || to.includes("BehaviorWildcard")) return undefined;
  if (from.some((one) => to.includes(one))) return undefined;
  if (source.isStream && !target.isStream && ["STRING", "ARRAY"].includes(target.dataFlowType)) return undefined;
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
export function slotLook(slot: Slot): "text" | "integer" | "float" | "boolean" | "object" | "array" | "any" {
  switch (slot.dataFlowType) {
    case "STRING":
      return "text";
    case "INTEGER":
      return "integer";
    case "FLOAT":
      return "float";
    case "BOOLEAN":
      return "boolean";
    case "OBJECT":
    case "BINARY":
      return "object";
    case "ARRAY":
      return "array";
    default:
      return "any";
  }
}
