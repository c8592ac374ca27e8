import { changeNode, isType, nodeOf, removeEdges, setValue } from "./document";
import type { DataFlowType, WorkflowDocument, WorkflowNode } from "./document";

/** What goes from one iteration of a loop to the next (`carried`), or what each gives (`perIteration`). */
export interface Variable {
  key: string;
  dataFlowType?: DataFlowType;
  initial?: unknown;
}

export type VariableKind = "carried" | "perIteration";

/** Between the border of a zone and what lies in it: its title is above, its slots are left and right. */
export const ROOM = { left: 130, top: 50, right: 130, bottom: 20 };

/** How high a zone must be to show its slots. */
export function slotsHeight(zone: WorkflowNode): number {
  const [carried, perIteration] = [variablesOf(zone, "carried").length, variablesOf(zone, "perIteration").length];
  const right = carried + 2 * perIteration + 3 + Number(Boolean(zone.configValues?.conditionSlot));
  return 48 + 26 * Math.max(carried + 2, right);
}

/** The slots that a variable has, by the beginning of their keys. */
const PREFIXES: Record<VariableKind, string[]> = {
  carried: ["in__", "next__", "out__"],
  perIteration: ["each__", "list__", "stream__"],
};

export function variablesOf(node: WorkflowNode | undefined, kind: VariableKind): Variable[] {
  const written = node?.configValues?.[kind];
  return Array.isArray(written) ? (written as Variable[]).filter((one) => typeof one?.key === "string") : [];
}

/** What of a loop's configuration makes slots, without what is wrong in it; `isWhole` where nothing is. */
export function loopOf({ configValues = {} }: WorkflowNode) {
  let isWhole = true;
  const variables = (kind: VariableKind) => {
    const found = new Map<string, Required<Variable>>();
    const written = configValues[kind] ?? [];
    for (const one of Array.isArray(written) ? (written as unknown[]) : []) {
      const { key, dataFlowType = "WILDCARD", initial } = Object(one) as Partial<Variable>;
      const isRight =
        typeof key === "string" && nameProblem(key, [...found.keys()]) === undefined && isType(dataFlowType);
      if (isRight) found.set(key, { key, dataFlowType, initial });
    }
    isWhole &&= Array.isArray(written) && written.length === found.size;
    return [...found.values()];
  };
  const [carried, perIteration] = [variables("carried"), variables("perIteration")];
  const named = configValues.conditionSlot ?? "";
  const condition = typeof named === "string" && conditionProblem(named) === undefined ? named : undefined;
  return { carried, perIteration, condition, isWhole: isWhole && (named === "" || condition !== undefined) };
}

/** Say why a variable of a loop may not have a name, as the key of a message. */
export function nameProblem(name: string, taken: string[]): string | undefined {
  if (name === "" || name.includes("__")) return "loop.badName";
  return taken.includes(name) ? "loop.taken" : undefined;
}

/** Say why the slot whose value ends a loop may not have a name. */
export const conditionProblem = (name: string) => nameProblem(name, ["count"]);

export function addVariable(document: WorkflowDocument, id: string, kind: VariableKind): WorkflowDocument {
  const those = variablesOf(nodeOf(document, id), kind);
  let key = "value";
  for (let number = 2; those.some((one) => one.key === key); number++) key = `value_${number}`;
  return setValue(document, id, "configValues", kind, [...those, { key, dataFlowType: "STRING" }]);
}

export function changeVariable(
  document: WorkflowDocument,
  id: string,
  kind: VariableKind,
  key: string,
  change: Partial<Variable>,
): WorkflowDocument {
  const those = variablesOf(nodeOf(document, id), kind);
  return setValue(
    document,
    id,
    "configValues",
    kind,
    those.map((one) => (one.key === key ? { ...one, ...change } : one)),
  );
}

/** Give a variable another name; what is connected with its slots stays connected. */
export function renameVariable(
  document: WorkflowDocument,
  id: string,
  kind: VariableKind,
  key: string,
  name: string,
): WorkflowDocument {
  const handles = new Map(PREFIXES[kind].map((prefix) => [prefix + key, prefix + name]));
  const changed = renameHandles(changeVariable(document, id, kind, key, { key: name }), id, handles);
  const values = nodeOf(changed, id)?.inputValues ?? {};
  const inputValues = Object.fromEntries(
    Object.entries(values).map(([one, value]) => [handles.get(one) ?? one, value]),
  );
  return changeNode(changed, id, () => ({ inputValues }));
}

export function removeVariable(
  document: WorkflowDocument,
  id: string,
  kind: VariableKind,
  key: string,
): WorkflowDocument {
  const those = variablesOf(nodeOf(document, id), kind).filter((one) => one.key !== key);
  return withoutHandles(
    setValue(document, id, "configValues", kind, those),
    id,
    PREFIXES[kind].map((prefix) => prefix + key),
  );
}

/** Name the slot whose value ends the loop, or (an empty name) have none. */
export function nameCondition(document: WorkflowDocument, id: string, name: string): WorkflowDocument {
  const old = String(nodeOf(document, id)?.configValues?.conditionSlot ?? "");
  const changed = setValue(document, id, "configValues", "conditionSlot", name || undefined);
  if (old === "") return changed;
  return name ? renameHandles(changed, id, new Map([[old, name]])) : withoutHandles(changed, id, [old]);
}

function renameHandles(document: WorkflowDocument, id: string, handles: Map<string, string>): WorkflowDocument {
  const edges = document.edges.map((edge) => {
    const source = edge.source === id ? handles.get(edge.sourceHandle) : undefined;
    const target = edge.target === id ? handles.get(edge.targetHandle) : undefined;
    if (source === undefined && target === undefined) return edge;
    return { ...edge, sourceHandle: source ?? edge.sourceHandle, targetHandle: target ?? edge.targetHandle };
  });
  return { ...document, edges };
}

function withoutHandles(document: WorkflowDocument, id: string, handles: string[]): WorkflowDocument {
  const lost = document.edges.filter(
    (edge) =>
      (edge.source === id && handles.includes(edge.sourceHandle)) ||
      (edge.target === id && handles.includes(edge.targetHandle)),
  );
  return removeEdges(
    document,
    lost.map((edge) => edge.id),
  );
}
