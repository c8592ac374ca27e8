/**
 * A workflow as it is stored (docs/workflows.md), and the changes that an editor makes to it.
 *
 * Documents are never changed: each function returns another one that shares what stayed the same, so that undo is a
 * list of documents, and what shows a node is rendered anew only where that node is another object.
 */
import type { components } from "../api/schema";
import { firstFree } from "../kit/words";

type Schemas = components["schemas"];
type Named<T> = { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] };
/** A part of the document with other types for some of its members; it may have more than is known here. */
type With<T, Others> = Omit<Named<T>, keyof Others> & Others & { [other: string]: unknown };
/** What is drawn has a place: what has none in its file is laid out. */
interface Drawn {
  position: { x: number; y: number };
  width?: number | null;
  height?: number | null;
}

export type DataFlowType = Schemas["DataFlowType"];
export type Slot = Schemas["InterfaceSlot"];
export type WorkflowNode = With<Schemas["WorkflowNode"], Drawn>;
export type WorkflowEdge = Schemas["WorkflowEdge"];
/** A note on the canvas, in Markdown. */
export type WorkflowComment = With<Schemas["WorkflowComment"], Drawn & { text: string }>;
/** A workflow as the editor has it: with its nodes and edges, where a file may have none. */
export type WorkflowDocument = With<
  Schemas["Workflow"],
  { nodes: WorkflowNode[]; edges: WorkflowEdge[]; comments?: WorkflowComment[] }
>;

/** The types of what flows, each with the family that it is drawn as. */
export const LOOKS = {
  STRING: "text",
  INTEGER: "integer",
  FLOAT: "float",
  BOOLEAN: "boolean",
  OBJECT: "object",
  ARRAY: "array",
  BINARY: "object",
  WILDCARD: "any",
  CONVERTIBLE_ANY: "any",
} as const satisfies Record<DataFlowType, string>;
export const isType = (type: unknown): type is DataFlowType => typeof type === "string" && Object.hasOwn(LOOKS, type);

export const GROUP_INPUT = "core:GroupInput";
export const GROUP_OUTPUT = "core:GroupOutput";
export const NODE_GROUP = "core:NodeGroup";
export const LOOP = "core:LoopZone";

/** Where nodes were laid out that have no place in their file, and how large zones are then. */
export type Places = ReadonlyMap<string, { position?: WorkflowNode["position"]; width?: number; height?: number }>;

const isPlaced = ({ position }: WorkflowNode) => Number.isFinite(position?.x) && Number.isFinite(position?.y);

/** The nodes that have no place in a workflow as the server has it. */
export function unplacedIn(stored: object): string[] {
  return ((stored as WorkflowDocument).nodes ?? []).flatMap((node) => (isPlaced(node) ? [] : [node.id]));
}

/** Return a workflow as the server has it, with what a file may leave out: its edges, and where its nodes are (until they are laid out, in a row). */
export function asDocument(stored: object, places: Places = new Map()): WorkflowDocument {
  const document = { nodes: [], edges: [], ...stored } as WorkflowDocument;
  const lacking = new Set(unplacedIn(document));
  if (lacking.size === 0) return document;
  const row = (index: number) => ({ x: (index % 6) * 260, y: Math.floor(index / 6) * 200 });
  const nodes = document.nodes.map((node, index) => (lacking.has(node.id) ? { ...node, position: row(index) } : node));
  return placed({ ...document, nodes }, places, lacking);
}

/** Put nodes where they were laid out, and let zones be as large as they must; those that have a place of their own keep it. */
export function placed(document: WorkflowDocument, places: Places, lacking: ReadonlySet<string>): WorkflowDocument {
  const nodes = document.nodes.map((node) => {
    const place = places.get(node.id);
    if (place === undefined) return node;
    const { position = node.position, width, height } = place;
    return {
      ...node,
      ...(lacking.has(node.id) && { position }),
      ...(width !== undefined && { width: Math.max(width, node.width ?? 0) }),
      ...(height !== undefined && { height: Math.max(height, node.height ?? 0) }),
    };
  });
  return { ...document, nodes };
}

/** The key and the place that the handle of an edge names: `texts__1` is the second edge of `texts`, which takes several. */
export function findSlot(handle: string, slots: Record<string, Slot>): { key: string; place?: number } | undefined {
  if (Object.hasOwn(slots, handle)) return { key: handle };
  const [, key = "", place] = /^(.*)__([0-9]{1,9})$/s.exec(handle) ?? [];
  const isPlace = place !== undefined && Object.hasOwn(slots, key) && slots[key]?.multi;
  return isPlace ? { key, place: Number(place) } : undefined;
}

/** The key of the slot that a handle names, or the handle where there is none. */
export const slotKey = (handle: string, slots: Record<string, Slot>) => findSlot(handle, slots)?.key ?? handle;

/** The innermost loop that a node lies in. A parent that is no loop is passed through; what is inside of itself lies in none. */
export function loopAround(document: WorkflowDocument, id: string): string | undefined {
  const parentOf = (of: string) => nodeOf(document, of)?.parentNode ?? "";
  const chain = [id];
  for (let at = parentOf(id); nodeOf(document, at) && !chain.includes(at); at = parentOf(at)) chain.push(at);
  const circle = chain.indexOf(parentOf(chain.at(-1)!));
  for (const [place, outer] of chain.slice(1).entries()) {
    if (circle >= 0 && place >= circle) break;
    if (nodeOf(document, outer)?.type === LOOP) return outer;
  }
  return undefined;
}

export function nodeOf(document: WorkflowDocument, id: string): WorkflowNode | undefined {
  return indexOf(document).nodes.get(id);
}

interface Index {
  nodes: Map<string, WorkflowNode>;
  edges: Map<string, WorkflowEdge>;
  into: Map<string, WorkflowEdge[]>;
  outOf: Map<string, WorkflowEdge[]>;
}

const indexes = new WeakMap<WorkflowDocument, Index>();

/** What is looked up often, made once for a document: nodes and edges by id, edges by the node that they enter or leave. */
export function indexOf(document: WorkflowDocument): Index {
  const known = indexes.get(document);
  if (known) return known;
  const index: Index = { nodes: new Map(), edges: new Map(), into: new Map(), outOf: new Map() };
  for (const node of document.nodes) index.nodes.set(node.id, node);
  for (const edge of document.edges) {
    index.edges.set(edge.id, edge);
    const into = index.into.get(edge.target);
    if (into) into.push(edge);
    else index.into.set(edge.target, [edge]);
    const outOf = index.outOf.get(edge.source);
    if (outOf) outOf.push(edge);
    else index.outOf.set(edge.source, [edge]);
  }
  indexes.set(document, index);
  return index;
}

/** Return an id that is not taken: `upper`, `upper-2`, … */
export function freeId(taken: { has(id: string): boolean }, wanted: string): string {
  const base =
    wanted
      .replace(/^.*:/, "")
      .replace(/([a-z0-9])([A-Z])/g, "$1-$2")
      .toLowerCase() || "node";
  return firstFree(base, (id) => taken.has(id));
}

export function addNode(document: WorkflowDocument, node: WorkflowNode): WorkflowDocument {
  return { ...document, nodes: [...document.nodes, node] };
}

/** Change one node; a function gives what is other of it. */
export function changeNode(
  document: WorkflowDocument,
  id: string,
  change: (node: WorkflowNode) => Partial<WorkflowNode>,
): WorkflowDocument {
  return { ...document, nodes: document.nodes.map((node) => (node.id === id ? { ...node, ...change(node) } : node)) };
}

/** Give an input a value, or none (`undefined`), so that its default counts again. */
export function setValue(
  document: WorkflowDocument,
  id: string,
  kind: "inputValues" | "configValues",
  key: string,
  value: unknown,
): WorkflowDocument {
  return changeNode(document, id, (node) => {
    const { [key]: _old, ...rest } = node[kind] ?? {};
    return { [kind]: value === undefined ? rest : { ...rest, [key]: value } };
  });
}

export function moveNodes(document: WorkflowDocument, to: Map<string, { x: number; y: number }>): WorkflowDocument {
  const nodes = document.nodes.map((node) => {
    const position = to.get(node.id);
    return position ? { ...node, position } : node;
  });
  return { ...document, nodes };
}

/** Remove nodes with their edges, and with what lies in them. */
export function removeNodes(document: WorkflowDocument, ids: Iterable<string>): WorkflowDocument {
  const gone = new Set(ids);
  for (let grew = true; grew;) {
    grew = false;
    for (const node of document.nodes) {
      if (node.parentNode && gone.has(node.parentNode) && !gone.has(node.id)) {
        gone.add(node.id);
        grew = true;
      }
    }
  }
  const lost = document.edges.filter((edge) => gone.has(edge.source) || gone.has(edge.target));
  const without = removeEdges(
    document,
    lost.map((edge) => edge.id),
  );
  return { ...without, nodes: without.nodes.filter((node) => !gone.has(node.id)) };
}

/** Remove edges; those that stay in the same input move up. */
export function removeEdges(document: WorkflowDocument, ids: Iterable<string>): WorkflowDocument {
  const gone = new Set(ids);
  let next: WorkflowDocument = { ...document, edges: document.edges.filter((edge) => !gone.has(edge.id)) };
  for (const edge of document.edges) {
    if (!gone.has(edge.id)) continue;
    const orders = Object.entries(nodeOf(next, edge.target)?.inputConnectionOrders ?? {});
    for (const [key, order] of orders.filter(([, order]) => order.includes(edge.id)))
      next = reorder(
        next,
        edge.target,
        key,
        order.filter((id) => id !== edge.id),
      );
  }
  return next;
}

/** Put the edges of a `multi` input into an order, which numbers their handles. */
export function reorder(document: WorkflowDocument, node: string, key: string, order: string[]): WorkflowDocument {
  const place = new Map(order.map((id, index) => [id, `${key}__${index}`]));
  const edges = document.edges.map((edge) => {
    const handle = place.get(edge.id);
    return handle !== undefined && handle !== edge.targetHandle ? { ...edge, targetHandle: handle } : edge;
  });
  return changeNode({ ...document, edges }, node, (one) => ({
    inputConnectionOrders: { ...one.inputConnectionOrders, [key]: order },
  }));
}

/** The edges into an input of a node, which has the inputs `slots`: those that its order names, then by the places of their handles, then the others. */
export function orderOf(document: WorkflowDocument, node: string, key: string, slots: Record<string, Slot>): string[] {
  const named = new Map(nodeOf(document, node)?.inputConnectionOrders?.[key]?.map((id, index) => [id, index]));
  const edges = (indexOf(document).into.get(node) ?? []).flatMap(({ id, targetHandle }) => {
    const slot = findSlot(targetHandle, slots);
    if (slot?.key !== key) return [];
    const [index, { place }] = [named.get(id), slot];
    return [{ id, rank: index !== undefined ? [0, index] : place !== undefined ? [1, place] : [2, 0] }];
  });
  return edges.sort((a, b) => a.rank[0]! - b.rank[0]! || a.rank[1]! - b.rank[1]!).map((edge) => edge.id);
}

export interface Ends {
  source: string;
  sourceHandle: string;
  target: string;
  targetHandle: string;
}

/** Connect an output with an input. An input that takes one edge loses the one that it had. */
export function connect(document: WorkflowDocument, ends: Ends, inputs: Record<string, Slot>): WorkflowDocument {
  const { key, place } = findSlot(ends.targetHandle, inputs) ?? { key: ends.targetHandle };
  const id = freeId({ has: (one) => document.edges.some((edge) => edge.id === one) }, `${ends.source}-${ends.target}`);
  if (inputs[key]?.multi) {
    const order = orderOf(document, ends.target, key, inputs);
    const at = place ?? order.length;
    const edge = { ...ends, id, targetHandle: `${key}__${at}` };
    order.splice(Math.min(at, order.length), 0, id);
    return reorder({ ...document, edges: [...document.edges, edge] }, ends.target, key, order);
  }
  const edges = document.edges.filter((edge) => edge.target !== ends.target || edge.targetHandle !== key);
  return { ...document, edges: [...edges, { ...ends, id, targetHandle: key }] };
}

/** Where the corner of a node is on the canvas, that of a zone too; null is the canvas itself. */
export function cornerOf(document: WorkflowDocument, id: string | null): { x: number; y: number } {
  const corner = { x: 0, y: 0 };
  const seen = new Set<string>();
  for (let at = id; at !== null && !seen.has(at);) {
    seen.add(at);
    const node = indexOf(document).nodes.get(at);
    corner.x += node?.position?.x ?? 0; // a file that a program wrote may have no places yet
    corner.y += node?.position?.y ?? 0;
    at = node?.parentNode ?? null;
  }
  return corner;
}
