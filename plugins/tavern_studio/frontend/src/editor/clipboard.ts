import { t } from "../i18n";
import {
  connect,
  freeId,
  indexOf,
  nodeOf,
  orderOf,
  slotKey,
  type Ends,
  type WorkflowDocument,
  type WorkflowEdge,
  type WorkflowNode,
} from "./document";
import { edgeProblem } from "./edges";
import { frameOf, shifted } from "./links";
import type { Slots } from "./slots";

/** What lies in the clipboard: nodes and their edges, as JSON that can be pasted into another tab. */
export interface Copied {
  tavernNodes: WorkflowNode[];
  /** The edges between them. */
  tavernEdges: WorkflowEdge[];
  /** The edges between them and others, with the name of the other node. */
  tavernOuter?: { edge: WorkflowEdge; name: string }[];
  /** The id of the workflow that they are of. */
  tavernFrom?: string;
}

/** What copying and pasting have to know of nodes. */
export interface Nodes {
  slotsIn(document: WorkflowDocument, node: WorkflowNode): Slots;
  titleOf(node: WorkflowNode): string;
}

const OFFSET = 40;
let kept = ""; // where the browser gives no clipboard, copies stay in this page

export function copyOf(
  document: WorkflowDocument,
  ids: ReadonlySet<string>,
  names: Pick<Nodes, "titleOf">,
  from?: string,
): Copied {
  const nodes = document.nodes.filter((node) => ids.has(node.id) || (node.parentNode && ids.has(node.parentNode)));
  const copied = new Set(nodes.map((node) => node.id));
  const isIn = (edge: WorkflowEdge) => Number(copied.has(edge.source)) + Number(copied.has(edge.target));
  const outer = document.edges
    .filter((edge) => isIn(edge) === 1)
    .flatMap((edge) => {
      const other = nodeOf(document, copied.has(edge.source) ? edge.target : edge.source);
      return other ? [{ edge, name: names.titleOf(other) }] : [];
    });
  return {
    tavernNodes: nodes,
    tavernEdges: document.edges.filter((edge) => isIn(edge) === 2),
    tavernOuter: outer,
    tavernFrom: from,
  };
}

export async function writeClipboard(copied: Copied): Promise<void> {
  kept = JSON.stringify(copied);
  await navigator.clipboard?.writeText(kept).catch(() => undefined); // not allowed: within this page it is pasted all the same
}

export async function readClipboard(): Promise<Copied> {
  // Where the browser does not allow it, what was copied in this page is pasted.
  return readCopied((await navigator.clipboard?.readText().catch(() => kept)) || kept);
}

/** Return the document with what was copied, under ids of its own, beside where it was; `renamed` has those by the old ones. */
export function pasteInto(
  document: WorkflowDocument,
  copied: Copied,
): { document: WorkflowDocument; renamed: Map<string, string> } {
  const taken = new Set(indexOf(document).nodes.keys());
  const renamed = new Map<string, string>();
  for (const node of copied.tavernNodes) {
    const id = freeId(taken, node.id.replace(/-\d+$/, ""));
    taken.add(id);
    renamed.set(node.id, id);
  }
  const edges = new Set(document.edges.map((edge) => edge.id));
  const edgeIds = new Map<string, string>();
  for (const edge of copied.tavernEdges) {
    const id = freeId(edges, `${renamed.get(edge.source)}-${renamed.get(edge.target)}`);
    edges.add(id);
    edgeIds.set(edge.id, id);
  }
  const nodes = copied.tavernNodes.map((node) => ({
    ...node,
    id: renamed.get(node.id) ?? node.id,
    parentNode: node.parentNode
      ? (renamed.get(node.parentNode) ?? (taken.has(node.parentNode) ? node.parentNode : null))
      : null,
    position:
      node.parentNode && renamed.has(node.parentNode)
        ? node.position
        : { x: node.position.x + OFFSET, y: node.position.y + OFFSET },
    inputConnectionOrders: Object.fromEntries(
      Object.entries(node.inputConnectionOrders ?? {}).map(([key, order]) => [
        key,
        order.flatMap((id) => edgeIds.get(id) ?? []),
      ]),
    ),
  }));
  const old: WorkflowDocument = { nodes: copied.tavernNodes, edges: copied.tavernEdges };
  const added = copied.tavernEdges.map((edge) => ({
    ...(renamed.has(frameOf(old, edge) ?? "") ? edge : shifted(edge, { x: OFFSET, y: OFFSET })),
    id: edgeIds.get(edge.id) ?? edge.id,
    source: renamed.get(edge.source) ?? edge.source,
    target: renamed.get(edge.target) ?? edge.target,
  }));
  return {
    document: { ...document, nodes: [...document.nodes, ...nodes], edges: [...document.edges, ...added] },
    renamed,
  };
}

/**
 * Connect what was pasted as it was connected where it was copied: with the node of the same id, else with the only one of
 * the same name, where that has the slot, the two fit, and the input is free.
 */
export function joinOuter(
  pasted: WorkflowDocument,
  { tavernOuter = [] }: Copied,
  renamed: Map<string, string>,
  nodes: Nodes,
): WorkflowDocument {
  const own = new Set(renamed.values());
  const others = pasted.nodes.filter((node) => !own.has(node.id));
  return tavernOuter.reduce((document, { edge, name }) => {
    const isInto = renamed.has(edge.target);
    const self = nodeOf(document, renamed.get(isInto ? edge.target : edge.source) ?? "");
    const named = others.filter((node) => nodes.titleOf(node) === name);
    const known = others.filter((node) => node.id === (isInto ? edge.source : edge.target));
    for (const other of [...known, ...(named.length === 1 ? named : [])]) {
      const [source, target] = isInto ? [other, self] : [self, other];
      if (source === undefined || target === undefined) continue;
      const joined = join(document, { ...edge, source: source.id, target: target.id }, nodes, !isInto);
      if (joined !== undefined) return joined;
    }
    return document;
  }, pasted);
}

/** Make an edge where both slots are there and fit, and the input is free; `atEnd` behind the edges that it has. */
function join(document: WorkflowDocument, ends: Ends, nodes: Nodes, atEnd: boolean): WorkflowDocument | undefined {
  const [source, target] = [nodeOf(document, ends.source)!, nodeOf(document, ends.target)!];
  const [from, to] = [nodes.slotsIn(document, source), nodes.slotsIn(document, target)];
  const inputs = { ...to.inputs, ...to.innerInputs };
  const key = slotKey(ends.targetHandle, inputs);
  const isThere =
    Object.hasOwn({ ...from.outputs, ...from.innerOutputs }, ends.sourceHandle) && Object.hasOwn(inputs, key);
  const slotsOf = (id: string) => (id === source.id ? from : to);
  if (!isThere || edgeProblem(document, ends, slotsOf) !== undefined) return undefined;
  if (!inputs[key]?.multi && orderOf(document, target.id, key, inputs).length > 0) return undefined;
  const { sourceHandle } = ends;
  return connect(
    document,
    { source: source.id, sourceHandle, target: target.id, targetHandle: atEnd ? key : ends.targetHandle },
    inputs,
  );
}

function readCopied(text: string): Copied {
  try {
    const read = JSON.parse(text) as Copied;
    if (Array.isArray(read.tavernNodes) && Array.isArray(read.tavernEdges)) return read;
  } catch {
    // said below
  }
  throw new Error(t("editor.nothingToPaste"));
}
