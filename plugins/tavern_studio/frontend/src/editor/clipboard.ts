import { t } from "../i18n";
import { freeId, indexOf, type WorkflowDocument, type WorkflowEdge, type WorkflowNode } from "./document";

/** What lies in the clipboard: nodes and the edges between them, as JSON that can be pasted into another tab. */
interface Copied {
  tavernNodes: WorkflowNode[];
  tavernEdges: WorkflowEdge[];
}

const OFFSET = 40;
let kept = ""; // where the browser gives no clipboard, copies stay in this page

export async function copyNodes(document: WorkflowDocument, ids: ReadonlySet<string>): Promise<void> {
  const copied: Copied = {
    tavernNodes: document.nodes.filter((node) => ids.has(node.id) || (node.parentNode && ids.has(node.parentNode))),
    tavernEdges: document.edges.filter((edge) => ids.has(edge.source) && ids.has(edge.target)),
  };
  kept = JSON.stringify(copied);
  await navigator.clipboard?.writeText(kept).catch(() => undefined);
}

/** Return the document with what was copied, under ids of its own, beside where it was. */
export async function pasteNodes(document: WorkflowDocument): Promise<{ document: WorkflowDocument; ids: string[] }> {
  const text = (await navigator.clipboard?.readText().catch(() => kept)) || kept;
  const copied = readCopied(text);
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
    parentNode: node.parentNode ? (renamed.get(node.parentNode) ?? (taken.has(node.parentNode) ? node.parentNode : null)) : null,
    position: { x: node.position.x + OFFSET, y: node.position.y + OFFSET },
    inputConnectionOrders: Object.fromEntries(
      Object.entries(node.inputConnectionOrders ?? {}).map(([key, order]) => [
        key,
        order.flatMap((id) => edgeIds.get(id) ?? []),
      ]),
    ),
  }));
  const added = copied.tavernEdges.map((edge) => ({
    ...edge,
    id: edgeIds.get(edge.id) ?? edge.id,
    source: renamed.get(edge.source) ?? edge.source,
    target: renamed.get(edge.target) ?? edge.target,
  }));
  return {
    document: { ...document, nodes: [...document.nodes, ...nodes], edges: [...document.edges, ...added] },
    ids: nodes.map((node) => node.id),
  };
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
