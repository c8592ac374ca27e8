import {
  cornerOf,
  freeId,
  GROUP_INPUT,
  GROUP_OUTPUT,
  indexOf,
  LOOP,
  NODE_GROUP,
  type Slot,
  type WorkflowDocument,
  type WorkflowEdge,
  type WorkflowNode,
} from "./document";
import { frameOf, keepPoints, shifted, withoutPoints } from "./links";
import { ROOM, slotsHeight } from "./loops";
import type { Slots } from "./slots";

type SlotsOf = (node: string) => Slots;

const BESIDE = 280;
const SIZE = { width: 220, height: 140 };

/** Return nodes with all that lies in them. */
export function withInside(document: WorkflowDocument, ids: Iterable<string>): Set<string> {
  const found = new Set(ids);
  for (let before = -1; before !== found.size;) {
    before = found.size;
    for (const node of document.nodes) if (node.parentNode && found.has(node.parentNode)) found.add(node.id);
  }
  return found;
}

/** Say why nodes cannot become a group, as the key of a message. */
export function whyNoGroup(document: WorkflowDocument, ids: Iterable<string>): string | undefined {
  const chosen = document.nodes.filter((node) => new Set(ids).has(node.id));
  if (chosen.length === 0) return "editor.groups.nothing";
  if (chosen.some((node) => node.type === GROUP_INPUT || node.type === GROUP_OUTPUT)) return "editor.groups.ends";
  if (new Set(chosen.map((node) => node.parentNode ?? null)).size > 1) return "editor.groups.apart";
  return undefined;
}

/**
 * Return the workflow that some nodes make, and a function that puts a group of it in their place. Edges that cross the
 * border become its interface; their ids, and with them the order of inputs for several, stay.
 */
export function makeGroup(document: WorkflowDocument, chosen: Iterable<string>, name: string, slotsOf: SlotsOf) {
  const ids = withInside(document, chosen);
  const nodes = document.nodes.filter((node) => ids.has(node.id));
  const border = boxOf(nodes.filter((node) => !node.parentNode || !ids.has(node.parentNode)));
  const input = freeId(ids, "input");
  const output = freeId(new Set([...ids, input]), "output");
  const inputs: Record<string, Slot> = {};
  const outputs: Record<string, Slot> = {};
  const keys = new Map<string, string>();
  const inner: WorkflowEdge[] = [];
  const outer: WorkflowEdge[] = [];
  for (const edge of document.edges) {
    const [from, to] = [ids.has(edge.source), ids.has(edge.target)];
    if (from && to) inner.push(edge);
    else if (!from && !to) outer.push(edge);
    else if (to) {
      const isKnown = keys.has(`> ${edge.source} ${edge.sourceHandle}`);
      const key = keyFor(`> ${edge.source} ${edge.sourceHandle}`, edge.sourceHandle, inputs, keys);
      const slots = slotsOf(edge.source);
      inputs[key] ??= like(slots.outputs[edge.sourceHandle] ?? slots.innerOutputs[edge.sourceHandle], key);
      inner.push({ ...edge, source: input, sourceHandle: key });
      if (!isKnown) outer.push({ ...edge, target: "", targetHandle: key });
    } else {
      const isKnown = keys.has(`< ${edge.source} ${edge.sourceHandle}`);
      const key = keyFor(`< ${edge.source} ${edge.sourceHandle}`, edge.sourceHandle, outputs, keys);
      outputs[key] ??= like(slotsOf(edge.source).outputs[edge.sourceHandle], key);
      if (!isKnown) inner.push({ ...edge, target: output, targetHandle: key });
      outer.push({ ...edge, source: "", sourceHandle: key });
    }
  }
  const middle = border.y + border.height / 2;
  const ends: WorkflowNode[] = [
    { id: input, type: GROUP_INPUT, position: { x: border.x - BESIDE, y: middle } },
    { id: output, type: GROUP_OUTPUT, position: { x: border.x + border.width + BESIDE / 4, y: middle } },
  ];
  const within = nodes.map((node) =>
    node.parentNode && !ids.has(node.parentNode) ? { ...node, parentNode: null } : node,
  );
  const drawn: WorkflowDocument = {
    name,
    nodes: [...ends, ...within],
    edges: inner,
    interfaceInputs: inputs,
    interfaceOutputs: outputs,
  };
  const made = keepPoints(document, drawn);
  const put = (reference: string): { document: WorkflowDocument; id: string } => {
    const rest = document.nodes.filter((node) => !ids.has(node.id));
    const id = freeId(new Set(rest.map((node) => node.id)), name.replace(/\W+/g, "-") || "group");
    const position = { x: border.x, y: border.y };
    const parentNode = nodes.find((node) => !node.parentNode || !ids.has(node.parentNode))?.parentNode ?? null;
    const group = {
      id,
      type: NODE_GROUP,
      position,
      parentNode,
      displayName: name,
      configValues: { referencedWorkflowId: reference },
    };
    const edges = outer.map((edge) => ({ ...edge, source: edge.source || id, target: edge.target || id }));
    return { document: { ...document, nodes: [...rest, group], edges }, id };
  };
  return { made, put };
}

function keyFor(end: string, handle: string, taken: Record<string, unknown>, keys: Map<string, string>): string {
  const wanted = handle.replace(/\W/g, "_");
  let key = keys.get(end) ?? wanted;
  if (!keys.has(end)) for (let number = 2; key in taken; number++) key = `${wanted}_${number}`;
  keys.set(end, key);
  return key;
}

function like(slot: Slot | undefined, key: string): Slot {
  const { multi: _multi, required: _required, ...rest } = slot ?? { dataFlowType: "WILDCARD" };
  return { ...rest, key, displayName: slot?.displayName ?? key };
}

/** Put what a group stands for in its place; values that were given to the group go where they were used. */
export function unpackGroup(
  document: WorkflowDocument,
  id: string,
  group: WorkflowDocument,
): { document: WorkflowDocument; ids: string[] } {
  const self = document.nodes.find((node) => node.id === id);
  if (self === undefined) return { document, ids: [] };
  const isEnd = (node: WorkflowNode) => node.type === GROUP_INPUT || node.type === GROUP_OUTPUT;
  const kind = new Map(group.nodes.map((node) => [node.id, node.type]));
  const taken = new Set(document.nodes.map((node) => node.id));
  const renamed = new Map<string, string>();
  for (const node of group.nodes.filter((one) => !isEnd(one))) {
    const free = freeId(taken, node.id);
    taken.add(free);
    renamed.set(node.id, free);
  }
  const edgeIds = new Set(document.edges.map((edge) => edge.id));
  const newIds = new Map<string, string>();
  for (const edge of group.edges) {
    const free = freeId(edgeIds, edge.id);
    edgeIds.add(free);
    newIds.set(edge.id, free);
  }
  const inner = group.nodes.filter((node) => !isEnd(node));
  const border = boxOf(inner.filter((node) => !node.parentNode));
  const moved = { x: self.position.x - border.x, y: self.position.y - border.y };
  const feeding = new Map((indexOf(document).into.get(id) ?? []).map((edge) => [edge.targetHandle, edge]));
  const values = new Map<string, Record<string, unknown>>();
  const added: WorkflowEdge[] = [];
  const giving = new Map<string, { source: string; sourceHandle: string } | undefined>();
  for (const edge of group.edges) {
    const feed = feeding.get(edge.sourceHandle);
    const inside = { source: renamed.get(edge.source) ?? "", sourceHandle: edge.sourceHandle };
    const from =
      kind.get(edge.source) === GROUP_INPUT ? feed && { source: feed.source, sourceHandle: feed.sourceHandle } : inside;
    if (kind.get(edge.target) === GROUP_OUTPUT) giving.set(edge.targetHandle, from);
    else if (from) {
      const drawn = from !== inside ? withoutPoints(edge) : frameOf(group, edge) === null ? shifted(edge, moved) : edge;
      added.push({ ...drawn, ...from, id: newIds.get(edge.id) ?? edge.id, target: renamed.get(edge.target) ?? "" });
    } else {
      const value =
        self.inputValues?.[edge.sourceHandle] ?? group.interfaceInputs?.[edge.sourceHandle]?.config?.default;
      if (value !== undefined) values.set(edge.target, { ...values.get(edge.target), [edge.targetHandle]: value });
    }
  }
  const nodes = inner.map((node) => ({
    ...node,
    id: renamed.get(node.id) ?? node.id,
    parentNode: node.parentNode ? renamed.get(node.parentNode) : self.parentNode,
    position: node.parentNode ? node.position : { x: node.position.x + moved.x, y: node.position.y + moved.y },
    inputValues: { ...node.inputValues, ...values.get(node.id) },
    inputConnectionOrders: Object.fromEntries(
      Object.entries(node.inputConnectionOrders ?? {}).map(([key, order]) => [
        key,
        order.map((one) => newIds.get(one) ?? one),
      ]),
    ),
  }));
  const edges = document.edges.flatMap((edge) => {
    if (edge.target === id) return [];
    if (edge.source !== id) return [edge];
    const from = giving.get(edge.sourceHandle);
    return from ? [{ ...edge, ...from }] : [];
  });
  const rest = document.nodes.filter((node) => node.id !== id);
  return {
    document: { ...document, nodes: [...rest, ...nodes], edges: [...edges, ...added] },
    ids: nodes.map((node) => node.id),
  };
}

/** Put a loop zone around nodes. What leaves it is carried from one iteration to the next, and its last value goes out. */
export function wrapInLoop(
  document: WorkflowDocument,
  chosen: Iterable<string>,
  slotsOf: SlotsOf,
): { document: WorkflowDocument; id: string } {
  const direct = new Set(chosen);
  const ids = withInside(document, direct);
  const nodes = document.nodes.filter((node) => direct.has(node.id));
  const border = boxOf(nodes);
  const id = freeId(indexOf(document).nodes, "loop");
  const carried: { key: string; dataFlowType: string }[] = [];
  const keys = new Map<string, string>();
  const edges = document.edges.flatMap((edge) => {
    if (!ids.has(edge.source) || ids.has(edge.target)) return [edge];
    const end = `${edge.source} ${edge.sourceHandle}`;
    const known = keys.get(end);
    const taken = Object.fromEntries(carried.map(({ key }) => [key, {}]));
    const key = keyFor(end, edge.sourceHandle.replace(/_{2,}/g, "_"), taken, keys);
    const out = { ...edge, source: id, sourceHandle: `out__${key}` };
    if (known !== undefined) return [out];
    carried.push({ key, dataFlowType: slotsOf(edge.source).outputs[edge.sourceHandle]?.dataFlowType ?? "WILDCARD" });
    return [
      out,
      {
        ...withoutPoints(edge),
        id: freeId({ has: (one) => document.edges.some((two) => two.id === one) }, `${edge.source}-${id}`),
        target: id,
        targetHandle: `next__${key}`,
      },
    ];
  });
  const corner = { x: border.x, y: border.y - ROOM.top };
  const zone = {
    id,
    type: LOOP,
    position: corner,
    parentNode: nodes[0]?.parentNode ?? null,
    width: border.width + ROOM.left + ROOM.right,
    height: border.height + ROOM.top + ROOM.bottom,
    configValues: { carried, perIteration: [], maxIterations: 10 },
  };
  zone.height = Math.max(zone.height, slotsHeight(zone));
  const right = border.x + border.width;
  const moved = document.nodes.map((node) => {
    const { x, y } = node.position;
    if (direct.has(node.id))
      return { ...node, parentNode: id, position: { x: x - corner.x + ROOM.left, y: y - corner.y } };
    // The zone is wider than what is in it.
    const isBeside = (node.parentNode ?? null) === zone.parentNode && x >= right;
    return isBeside ? { ...node, position: { x: x + ROOM.left + ROOM.right, y } } : node;
  });
  return { document: { ...document, nodes: [zone, ...moved], edges }, id };
}

/** Put a node into a zone, or (null) out of the one that it lies in, at the place where it is. */
export function moveInto(document: WorkflowDocument, id: string, zone: string | null): WorkflowDocument {
  const node = indexOf(document).nodes.get(id);
  if (
    node === undefined ||
    (node.parentNode ?? null) === zone ||
    (zone !== null && withInside(document, [id]).has(zone))
  )
    return document;
  const from = cornerOf(document, node.parentNode ?? null);
  const to = cornerOf(document, zone);
  const position = { x: node.position.x + from.x - to.x, y: node.position.y + from.y - to.y };
  const moved = { ...node, parentNode: zone, position };
  return { ...document, nodes: [...document.nodes.filter((one) => one.id !== id), moved] };
}

function boxOf(nodes: WorkflowNode[]): { x: number; y: number; width: number; height: number } {
  if (nodes.length === 0) return { x: 0, y: 0, width: 0, height: 0 };
  const x = Math.min(...nodes.map((node) => node.position.x));
  const y = Math.min(...nodes.map((node) => node.position.y));
  const width = Math.max(...nodes.map((node) => node.position.x + (node.width ?? SIZE.width))) - x;
  const height = Math.max(...nodes.map((node) => node.position.y + (node.height ?? SIZE.height))) - y;
  return { x, y, width, height };
}
