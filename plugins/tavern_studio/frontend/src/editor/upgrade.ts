import {
  changeNode,
  indexOf,
  loopAround,
  nodeOf,
  orderOf,
  removeEdges,
  reorder,
  slotKey,
  type Slot,
  type WorkflowDocument,
  type WorkflowEdge,
  type WorkflowNode,
} from "./document";
import { refusal, type Slots } from "./slots";

/** A workflow with nodes as their definitions are now, what became of which slot, and what was given up. */
export interface Upgrade {
  document: WorkflowDocument;
  mapped: { node: string; from: string; to: string }[];
  removed: { node: string; slot: string }[];
}

type SlotsIn = (document: WorkflowDocument, node: WorkflowNode) => Slots;

/**
 * Give the edges and values of slots that nodes have no more to those that took their place, and remove the others.
 *
 * A slot takes the place of one whose name differs from its own in case and signs alone, or as the only one of the same
 * type that is free and that no other asks for.
 */
export function upgradeNodes(document: WorkflowDocument, ids: Iterable<string>, slotsIn: SlotsIn): Upgrade {
  const done: Upgrade = { document, mapped: [], removed: [] };
  for (const id of ids) for (const step of [upgradeInputs, upgradeOutputs, upgradeValues]) step(done, id, slotsIn);
  return done;
}

/** A slot that is gone took several edges as far as anybody knows. */
const MANY: Slot = { dataFlowType: "WILDCARD", multi: true };
const keyOf = (handle: string) => handle.replace(/__\d+$/, "");

function upgradeInputs(done: Upgrade, id: string, slotsIn: SlotsIn): void {
  const { document } = done;
  const slots = slotsOf(document, id, slotsIn);
  const edges = (indexOf(document).into.get(id) ?? []).filter((edge) => slots.gone?.inputs.includes(edge.targetHandle));
  const gone = byKey(edges, (edge) => keyOf(edge.targetHandle));
  const isInside = (edge: WorkflowEdge) => loopAround(document, edge.source) === id;
  const feeding = (edge: WorkflowEdge) => outputOf(slotsOf(document, edge.source, slotsIn), edge.sourceHandle);
  const there: Record<string, Slot> = { ...slots.inputs, ...slots.innerInputs };
  const pairs = pair([...gone.keys()], there, {
    fits: (key, slot, to) => {
      const asking = gone.get(key) ?? [];
      const others = orderOf(document, id, to, there).filter((one) => !asking.some((edge) => edge.id === one));
      if (!slot.multi && asking.length + others.length > 1) return false;
      return asking.every((edge) => isInside(edge) === to in slots.innerInputs && isAllowed(feeding(edge), slot));
    },
    isSame: (key, slot, to) =>
      nodeOf(document, id)?.inputValues?.[to] == null &&
      (gone.get(key) ?? []).every((edge) => feeding(edge)?.dataFlowType === slot.dataFlowType),
  });
  for (const [key, asking] of gone) {
    const to = pairs.get(key);
    const order = orderOf(done.document, id, key, { ...there, [key]: MANY });
    if (to === undefined)
      done.document = removeEdges(
        done.document,
        asking.map((edge) => edge.id),
      );
    else done.document = moveEdges(done.document, id, order, to, there);
    tell(done, id, key, to);
  }
  const left = [...gone.keys()].filter((key) => !(key in there));
  if (left.length) done.document = forgetOrders(done.document, id, left);
}

/** Let edges end at another input, behind those that it has. */
function moveEdges(
  document: WorkflowDocument,
  id: string,
  moving: string[],
  to: string,
  inputs: Record<string, Slot>,
): WorkflowDocument {
  const order = [...orderOf(document, id, to, inputs).filter((edge) => !moving.includes(edge)), ...moving];
  const edges = document.edges.map((edge) => (moving.includes(edge.id) ? { ...edge, targetHandle: to } : edge));
  const moved = { ...document, edges };
  return inputs[to]?.multi ? reorder(moved, id, to, order) : moved;
}

function forgetOrders(document: WorkflowDocument, id: string, keys: Iterable<string>): WorkflowDocument {
  const gone = new Set(keys);
  return changeNode(document, id, ({ inputConnectionOrders: orders = {} }) => ({
    inputConnectionOrders: Object.fromEntries(Object.entries(orders).filter(([key]) => !gone.has(key))),
  }));
}

function upgradeOutputs(done: Upgrade, id: string, slotsIn: SlotsIn): void {
  const { document } = done;
  const slots = slotsOf(document, id, slotsIn);
  const leaving = indexOf(document).outOf.get(id) ?? [];
  const gone = byKey(
    leaving.filter((edge) => slots.gone?.outputs.includes(edge.sourceHandle)),
    (edge) => edge.sourceHandle,
  );
  const isInside = (edge: WorkflowEdge) => loopAround(document, edge.target) === id;
  const fed = (edge: WorkflowEdge) => inputOf(slotsOf(document, edge.target, slotsIn), edge.targetHandle);
  const pairs = pair(
    [...gone.keys()],
    { ...slots.outputs, ...slots.innerOutputs },
    {
      fits: (key, slot, to) =>
        (gone.get(key) ?? []).every(
          (edge) => isInside(edge) === to in slots.innerOutputs && isAllowed(slot, fed(edge)),
        ),
      isSame: (key, slot, to) =>
        !leaving.some((edge) => edge.sourceHandle === to) &&
        (gone.get(key) ?? []).every((edge) => fed(edge)?.dataFlowType === slot.dataFlowType),
    },
  );
  for (const [key, asking] of gone) {
    const to = pairs.get(key);
    const moving = new Set(asking);
    if (to === undefined)
      done.document = removeEdges(
        done.document,
        asking.map((edge) => edge.id),
      );
    else {
      const edges = done.document.edges.map((edge) => (moving.has(edge) ? { ...edge, sourceHandle: to } : edge));
      done.document = { ...done.document, edges };
    }
    tell(done, id, key, to);
  }
}

/** Values go where the edges of their slot went; else like those. */
function upgradeValues(done: Upgrade, id: string, slotsIn: SlotsIn): void {
  const slots = slotsOf(done.document, id, slotsIn);
  const gone = slots.gone?.values ?? [];
  if (gone.length === 0) return;
  const values = { ...nodeOf(done.document, id)?.inputValues };
  const pairs = pair(gone, slots.inputs, {
    fits: (_key, _slot, to) => values[to] == null,
    isSame: (key, slot, to) =>
      typeOf(values[key]).includes(slot.dataFlowType) && orderOf(done.document, id, to, slots.inputs).length === 0,
  });
  for (const key of gone) {
    const edge = done.mapped.find(
      (one) => one.node === id && one.from === key && values[one.to] == null && one.to in slots.inputs,
    );
    const to = edge?.to ?? pairs.get(key);
    if (to !== undefined) values[to] = values[key];
    delete values[key];
    if (edge === undefined) tell(done, id, key, to);
  }
  done.document = changeNode(done.document, id, () => ({ inputValues: values }));
}

function typeOf(value: unknown): string[] {
  if (typeof value === "number") return Number.isInteger(value) ? ["INTEGER", "FLOAT"] : ["FLOAT"];
  if (Array.isArray(value)) return ["ARRAY"];
  return { string: ["STRING"], boolean: ["BOOLEAN"], object: ["OBJECT"] }[typeof value as string] ?? [];
}

interface Rules {
  fits: (key: string, slot: Slot, to: string) => boolean;
  isSame: (key: string, slot: Slot, to: string) => boolean;
}

/** Say which slot takes the place of which: by its name, else as the only one of its type, for one that asks alone. */
function pair(gone: string[], there: Record<string, Slot>, { fits, isSame }: Rules): Map<string, string> {
  const pairs = new Map<string, string>();
  const taken = new Set<string>();
  for (const key of gone) {
    const named = Object.entries(there).find(
      ([to, slot]) => plain(to) === plain(key) && !taken.has(to) && fits(key, slot, to),
    );
    if (named === undefined) continue;
    pairs.set(key, named[0]);
    taken.add(named[0]);
  }
  const wanted = gone
    .filter((key) => !pairs.has(key))
    .map((key) => {
      const free = Object.entries(there).filter(
        ([to, slot]) => !taken.has(to) && fits(key, slot, to) && isSame(key, slot, to),
      );
      return [key, free.map(([to]) => to)] as const;
    });
  for (const [key, [only, ...others]] of wanted) {
    const isAlone = wanted.every(([other, free]) => other === key || !free.includes(only ?? ""));
    if (only !== undefined && others.length === 0 && isAlone) pairs.set(key, only);
  }
  return pairs;
}

const plain = (name: string) => name.toLowerCase().replace(/[\W_]/g, "") || name;

/** Whether an edge may be; one with an unknown end may. */
function isAllowed(source: Slot | undefined, target: Slot | undefined): boolean {
  return source === undefined || target === undefined || refusal(source, target) === undefined;
}

function slotsOf(document: WorkflowDocument, id: string, slotsIn: SlotsIn): Slots {
  const node = nodeOf(document, id);
  return node ? slotsIn(document, node) : { inputs: {}, outputs: {}, innerInputs: {}, innerOutputs: {} };
}

const outputOf = (slots: Slots, handle: string): Slot | undefined =>
  slots.outputs[handle] ?? slots.innerOutputs[handle];
const inputOf = (slots: Slots, handle: string): Slot | undefined =>
  slots.innerInputs[handle] ?? slots.inputs[slotKey(handle, slots.inputs)];

function byKey(edges: WorkflowEdge[], key: (edge: WorkflowEdge) => string): Map<string, WorkflowEdge[]> {
  const found = new Map<string, WorkflowEdge[]>();
  for (const edge of edges) found.set(key(edge), [...(found.get(key(edge)) ?? []), edge]);
  return found;
}

function tell(done: Upgrade, node: string, from: string, to: string | undefined): void {
  if (to === undefined) done.removed.push({ node, slot: from });
  else done.mapped.push({ node, from, to });
}
