import { indexOf, type WorkflowDocument, type WorkflowEdge, type WorkflowNode } from "./document";

export type Mark = "added" | "changed" | "removed";

/** What became of a workflow since an earlier revision. */
export interface Comparison {
  /** Which revision it is compared with, for people. */
  name: string;
  nodes: Map<string, Mark>;
  edges: Map<string, Mark>;
  /** The document with what was removed from it in its old place. */
  document: WorkflowDocument;
}

/** Say what differs between an earlier document and a later one. A node that was only moved is the same, and an edge that is only drawn otherwise. */
export function compare(name: string, earlier: WorkflowDocument, later: WorkflowDocument): Comparison {
  const nodes = marksOf(earlier.nodes, later.nodes, contentOf);
  const edges = marksOf(earlier.edges, later.edges, endsOf);
  const gone = earlier.nodes.filter((node) => nodes.get(node.id) === "removed");
  const goneNodes = gone.map((node) => ({ ...node, position: node.position ?? { x: 0, y: 0 } }));
  const goneEdges = earlier.edges.filter((edge) => edges.get(edge.id) === "removed");
  const document = { ...later, nodes: [...later.nodes, ...goneNodes], edges: [...later.edges, ...goneEdges] };
  return { name, nodes, edges, document };
}

function marksOf<T extends WorkflowNode | WorkflowEdge>(
  earlier: T[],
  later: T[],
  text: (one: T) => string,
): Map<string, Mark> {
  const marks = new Map<string, Mark>();
  const before = new Map(earlier.map((one) => [one.id, one]));
  for (const one of later) {
    const old = before.get(one.id);
    before.delete(one.id);
    if (old === undefined) marks.set(one.id, "added");
    else if (old !== one && text(old) !== text(one)) marks.set(one.id, "changed");
  }
  for (const id of before.keys()) marks.set(id, "removed");
  return marks;
}

/** The nodes that would give something else now than in a run of an earlier document: what was changed, and what follows from it. */
export function staleSince(ran: WorkflowDocument | undefined, now: WorkflowDocument): ReadonlySet<string> {
  const stale = new Set<string>();
  if (ran === undefined || ran === now) return stale;
  for (const [id, mark] of marksOf(ran.nodes, now.nodes, effectOf)) if (mark !== "removed") stale.add(id);
  const edges = marksOf(ran.edges, now.edges, endsOf);
  for (const edge of [...ran.edges, ...now.edges]) if (edges.has(edge.id)) stale.add(edge.target);
  const { outOf } = indexOf(now);
  for (const id of stale) for (const edge of outOf.get(id) ?? []) stale.add(edge.target); // a set is gone through with what is added meanwhile
  return stale;
}

/** What a node says, wherever it is drawn. */
const contentOf = (node: WorkflowNode) => textOf(node, (key) => !PLACE.has(key));
/** What of a node counts for what it gives. */
const effectOf = (node: WorkflowNode) => textOf(node, (key) => EFFECT.has(key));

function textOf(node: WorkflowNode, isMeant: (key: string) => boolean): string {
  const said = Object.entries(node).filter(([key, value]) => isMeant(key) && !saysNothing(value));
  return canonical(Object.fromEntries(said));
}

/** What an edge says, however it is drawn. */
function endsOf({ reroute: _reroute, linkName: _name, ...edge }: WorkflowEdge): string {
  return canonical(edge);
}

const PLACE = new Set(["position", "width", "height"]);
const EFFECT = new Set([
  "type",
  "inputValues",
  "configValues",
  "inputConnectionOrders",
  "bypassed",
  "parentNode",
  "policy",
]);

/** Whether a key with this value says the same as none: what was drawn is run with all keys, and written with few. */
function saysNothing(value: unknown): boolean {
  return value == null || value === false || (typeof value === "object" && Object.keys(value).length === 0);
}

/** Return a value as JSON in which the order of keys does not count. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    part !== null && typeof part === "object" && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** Whether two documents say the same. */
export function isSame(one: WorkflowDocument, other: WorkflowDocument): boolean {
  return one === other || canonical(one) === canonical(other);
}
