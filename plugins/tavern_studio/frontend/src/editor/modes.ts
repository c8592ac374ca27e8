import { slotsInMode, type NodeDefinition } from "./nodetypes";
import { changeNode, nodeOf, setValue, type Slot, type WorkflowDocument } from "./document";
import { modeOf, refusal } from "./slots";

/** The configuration that selects the mode of a node, as a slot to choose it with; undefined where there are none. */
export function modeChoice(definition: NodeDefinition | undefined): { key: string; slot: Slot } | undefined {
  const modes = Object.entries(definition?.modes ?? {});
  const key = definition?.modeConfigKey;
  if (definition === undefined || key == null || modes.length === 0) return undefined;
  const suggestions = modes.map(([value, mode]) => ({ value, label: mode.displayName ?? value }));
  const made: Slot = {
    dataFlowType: "STRING",
    matchCategories: ["ComboOption"],
    config: { default: definition.defaultModeId, suggestions },
  };
  return { key, slot: definition.configSchema?.[key] ?? made };
}

/**
 * Put a node into another mode. What was connected with or written into a slot that the mode does not have goes to the
 * slot in its place, if that takes it; else it stays, as with any definition that has changed.
 */
export function changeMode(
  document: WorkflowDocument,
  id: string,
  definition: NodeDefinition,
  mode: unknown,
): WorkflowDocument {
  const node = nodeOf(document, id);
  const choice = modeChoice(definition);
  if (node === undefined || choice === undefined) return document;
  const old = slotsInMode(definition, modeOf(node, definition));
  const now = slotsInMode(definition, modeOf({ configValues: { [choice.key]: mode } }, definition));
  const [inputs, outputs] = [replaced(old.inputs, now.inputs), replaced(old.outputs, now.outputs)];
  const edges = document.edges.map((edge) => {
    const target = edge.target === id ? inputs.get(edge.targetHandle) : undefined;
    const source = edge.source === id ? outputs.get(edge.sourceHandle) : undefined;
    if (target === undefined && source === undefined) return edge;
    return { ...edge, targetHandle: target ?? edge.targetHandle, sourceHandle: source ?? edge.sourceHandle };
  });
  const values = Object.entries(node.inputValues ?? {}).map(([key, value]) => [inputs.get(key) ?? key, value]);
  const changed = changeNode({ ...document, edges }, id, () => ({ inputValues: Object.fromEntries(values) }));
  return setValue(changed, id, "configValues", choice.key, mode);
}

/** By the keys that are no more: the key of the slot in their place. */
function replaced(before: Record<string, Slot>, after: Record<string, Slot>): Map<string, string> {
  const places = Object.keys(after);
  const gone = Object.entries(before).flatMap(([key, slot], index): [string, string][] => {
    const place = places[index];
    if (key in after || place === undefined || place in before) return [];
    return refusal(slot, after[place]!) === undefined ? [[key, place]] : [];
  });
  return new Map(gone);
}
