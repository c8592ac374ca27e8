/**
 * A workflow as it is stored (docs/workflows.md), and the changes that an editor makes to it.
 *
 * Documents are never changed: each function returns another one that shares what stayed the same, so that undo is a
 * list of documents, and what shows a node is rendered anew only where that node is another object.
 */

export interface Slot {
  dataFlowType: string;
  displayName?: string;
  description?: string;
  customDescription?: string;
  required?: boolean;
  multi?: boolean;
  isStream?: boolean;
  matchCategories?: string[];
  config?: Record<string, unknown>;
  key?: string;
  actions?: SlotAction[];
}

/** A button beside a slot: it calls a function of the node, or opens where the value is edited. */
export interface SlotAction {
  id: string;
  tooltip?: string;
  handlerType?: string;
}

export interface WorkflowNode {
  id: string;
  type: string;
  position: { x: number; y: number };
  parentNode?: string | null;
  width?: number | null;
  height?: number | null;
  displayName?: string | null;
  inputValues?: Record<string, unknown>;
  configValues?: Record<string, unknown>;
  inputConnectionOrders?: Record<string, string[]>;
  bypassed?: boolean;
  /** Outputs that runs begun here take in the place of what the node would give. */
  pinnedOutputs?: Record<string, unknown>;
  [other: string]: unknown;
}

export interface WorkflowEdge {
  id: string;
  source: string;
  sourceHandle: string;
  target: string;
  targetHandle: string;
  [other: string]: unknown;
}

/** A note on the canvas, in Markdown. */
export interface WorkflowComment {
  id: string;
  text: string;
  position: { x: number; y: number };
  width?: number | null;
  height?: number | null;
  [other: string]: unknown;
}

export interface WorkflowDocument {
  id?: string | null;
  name?: string | null;
  description?: string | null;
  nodes: WorkflowNode[];
  edges: WorkflowEdge[];
  comments?: WorkflowComment[];
  interfaceInputs?: Record<string, Slot>;
  interfaceOutputs?: Record<string, Slot>;
  viewport?: { x: number; y: number; zoom: number };
  [other: string]: unknown;
}

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

/** The key of a slot without the number of the edge: `texts__1` is the second edge of `texts`. */
export function slotKey(handle: string, slots: Record<string, Slot>): string {
  if (handle in slots) return handle;
  const key = handle.replace(/__\d+$/, "");
  return slots[key]?.multi ? key : handle;
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
  for (let number = 1; ; number++) {
    const id = number === 1 ? base : `${base}-${number}`;
    if (!taken.has(id)) return id;
  }
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
    const key = edge.targetHandle.replace(/__\d+$/, "");
    const order = nodeOf(next, edge.target)?.inputConnectionOrders?.[key];
    if (order?.includes(edge.id))
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

/** The edges into a `multi` input, in their order. */
export function orderOf(document: WorkflowDocument, node: string, key: string): string[] {
  const edges = (indexOf(document).into.get(node) ?? []).filter(
    (edge) => edge.targetHandle === key || edge.targetHandle.replace(/__\d+$/, "") === key,
  );
  const kept = nodeOf(document, node)?.inputConnectionOrders?.[key] ?? [];
  const rank = (edge: WorkflowEdge) => {
    const index = kept.indexOf(edge.id);
    return index >= 0 ? index : kept.length + Number(/__(\d+)$/.exec(edge.targetHandle)?.[1] ?? 0);
  };
  return [...edges].sort((a, b) => rank(a) - rank(b)).map((edge) => edge.id);
}

export interface Ends {
  source: string;
  sourceHandle: string;
  target: string;
  targetHandle: string;
}

/** Connect an output with an input. An input that takes one edge loses the one that it had. */
export function connect(document: WorkflowDocument, ends: Ends, inputs: Record<string, Slot>): WorkflowDocument {
  const key = slotKey(ends.targetHandle, inputs);
  const id = freeId({ has: (one) => document.edges.some((edge) => edge.id === one) }, `${ends.source}-${ends.target}`);
  if (inputs[key]?.multi) {
    const order = orderOf(document, ends.target, key);
    const at = Number(/__(\d+)$/.exec(ends.targetHandle)?.[1] ?? order.length);
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
    corner.x += node?.position.x ?? 0;
    corner.y += node?.position.y ?? 0;
    at = node?.parentNode ?? null;
  }
  return corner;
}
