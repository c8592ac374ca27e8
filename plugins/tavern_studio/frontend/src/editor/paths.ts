import { indexOf, nodeOf, type WorkflowDocument, type WorkflowEdge } from "./document";

/** Nodes and edges by their ids. */
interface Path {
  nodes: Set<string>;
  edges: Set<string>;
}

/** Return what leads to some nodes, and from them. The zones that it lies in are of it. */
export function pathOf(document: WorkflowDocument, ids: Iterable<string>): Path {
  const { into, outOf } = indexOf(document);
  const start = [...ids].filter((id) => nodeOf(document, id));
  const path: Path = { nodes: new Set(start), edges: new Set() };
  walk(path, start, into, (edge) => edge.source);
  walk(path, start, outOf, (edge) => edge.target);
  for (const id of path.nodes) {
    const zone = nodeOf(document, id)?.parentNode;
    if (zone) path.nodes.add(zone); // a set is gone through with what is added meanwhile
  }
  return path;
}

function walk(
  path: Path,
  start: string[],
  edges: Map<string, WorkflowEdge[]>,
  end: (edge: WorkflowEdge) => string,
): void {
  const seen = new Set(start);
  for (const id of seen) {
    for (const edge of edges.get(id) ?? []) {
      path.edges.add(edge.id);
      path.nodes.add(end(edge));
      seen.add(end(edge));
    }
  }
}
