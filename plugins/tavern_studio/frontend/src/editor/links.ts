import { cornerOf, indexOf, nodeOf, type WorkflowDocument, type WorkflowEdge } from "./document";

/**
 * How an edge is drawn: through `reroute`, points from the corner of the zone that both its ends lie in, or as a
 * `linkName` at its ends in place of a line. Both are keys of the edge in the file that mean nothing to a run.
 */
export interface Point {
  x: number;
  y: number;
}

export function pointsOf(edge: WorkflowEdge): Point[] {
  const points = Array.isArray(edge.reroute) ? (edge.reroute as Partial<Point>[]) : [];
  return points.filter((one): one is Point => Number.isFinite(one?.x) && Number.isFinite(one?.y));
}

export function linkNameOf(edge: WorkflowEdge): string | undefined {
  return typeof edge.linkName === "string" && edge.linkName !== "" ? edge.linkName : undefined;
}

/** The innermost zone that both ends lie in, or that is one end and the other's zone; null for the canvas. */
export function frameOf(document: WorkflowDocument, edge: WorkflowEdge): string | null {
  const around = chainOf(document, edge.target);
  return [...chainOf(document, edge.source)].find((id) => around.has(id)) ?? null;
}

function chainOf(document: WorkflowDocument, id: string): Set<string> {
  const chain = new Set<string>();
  for (let at: string | null | undefined = id; at && !chain.has(at); at = nodeOf(document, at)?.parentNode)
    chain.add(at);
  return chain;
}

function changeEdges(
  document: WorkflowDocument,
  ids: Iterable<string>,
  change: (edge: WorkflowEdge) => WorkflowEdge,
): WorkflowDocument {
  const wanted = new Set(ids);
  const edges = document.edges.map((edge) => (wanted.has(edge.id) ? change(edge) : edge));
  return edges.every((edge, index) => edge === document.edges[index]) ? document : { ...document, edges };
}

export function setPoints(document: WorkflowDocument, id: string, points: Point[]): WorkflowDocument {
  return changeEdges(document, [id], (edge) => (points.length ? { ...edge, reroute: points } : withoutPoints(edge)));
}

/** Put a point into the part of an edge that is nearest to it; `ends` are where the edge begins and ends. */
export function addPoint(document: WorkflowDocument, id: string, point: Point, ends: [Point, Point]): WorkflowDocument {
  return changeEdges(document, [id], (edge) => {
    const points = pointsOf(edge);
    const line = [ends[0], ...points, ends[1]];
    const away = points.map((_, index) => distance(point, line[index]!, line[index + 1]!));
    away.push(distance(point, line.at(-2)!, line.at(-1)!));
    points.splice(away.indexOf(Math.min(...away)), 0, point);
    return { ...edge, reroute: points };
  });
}

/** The middle of the longest part of an edge. */
export function middleOf(line: Point[]): Point {
  let longest = [line[0]!, line[1]!] as const;
  for (let index = 1; index + 1 < line.length; index++) {
    const part = [line[index]!, line[index + 1]!] as const;
    if (
      Math.hypot(part[0].x - part[1].x, part[0].y - part[1].y) >
      Math.hypot(longest[0].x - longest[1].x, longest[0].y - longest[1].y)
    )
      longest = part;
  }
  return { x: (longest[0].x + longest[1].x) / 2, y: (longest[0].y + longest[1].y) / 2 };
}

/** How far a point is from the part of a line between two others. */
function distance(point: Point, a: Point, b: Point): number {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const along = ((point.x - a.x) * dx + (point.y - a.y) * dy) / (dx * dx + dy * dy || 1);
  const at = Math.max(0, Math.min(1, along));
  return Math.hypot(point.x - a.x - at * dx, point.y - a.y - at * dy);
}

export function withoutPoints(edge: WorkflowEdge): WorkflowEdge {
  const { reroute: _reroute, ...rest } = edge;
  return edge.reroute === undefined ? edge : rest;
}

/** Remove the points of edges. */
export function straighten(document: WorkflowDocument, ids: Iterable<string>): WorkflowDocument {
  return changeEdges(document, ids, withoutPoints);
}

/** Give edges a name that is drawn in place of their lines, or (undefined) their lines back. */
export function nameLinks(
  document: WorkflowDocument,
  ids: Iterable<string>,
  name: string | undefined,
): WorkflowDocument {
  return changeEdges(document, ids, (edge) => {
    const { linkName: _name, ...rest } = edge;
    return name === undefined ? rest : { ...rest, linkName: name };
  });
}

export function shifted(edge: WorkflowEdge, by: Point): WorkflowEdge {
  const points = pointsOf(edge);
  if (points.length === 0 || (by.x === 0 && by.y === 0)) return edge;
  return { ...edge, reroute: points.map(({ x, y }) => ({ x: x + by.x, y: y + by.y })) };
}

/**
 * Let the points of edges follow a change of the document: they go where both ends of their edge, or its zone, went,
 * and are dropped where an end is another node.
 */
export function keepPoints(before: WorkflowDocument, after: WorkflowDocument): WorkflowDocument {
  if (before.nodes === after.nodes && before.edges === after.edges) return after;
  const routed = after.edges.filter((edge) => edge.reroute !== undefined);
  if (routed.length === 0) return after;
  const old = indexOf(before).edges;
  return changeEdges(
    after,
    routed.map((edge) => edge.id),
    (edge) => {
      const was = old.get(edge.id);
      if (was === undefined) return edge; // new here
      if (was.source !== edge.source || was.target !== edge.target) return withoutPoints(edge);
      const gone = (id: string) => less(cornerOf(after, id), cornerOf(before, id));
      const [source, target] = [gone(edge.source), gone(edge.target)];
      const [from, to] = [frameOf(before, edge), frameOf(after, edge)];
      const corner = less(cornerOf(after, to), cornerOf(before, from));
      const isTogether = Math.hypot(source.x - target.x, source.y - target.y) < 0.01;
      const move = isTogether ? source : from === to ? corner : { x: 0, y: 0 };
      return shifted(edge, less(move, corner));
    },
  );
}

const less = (a: Point, b: Point): Point => ({ x: a.x - b.x, y: a.y - b.y });

/** Return a smooth path from an output to an input, through points. */
export function pathThrough(line: Point[]): string {
  const [first, ...rest] = line;
  if (first === undefined) return "";
  const parts = rest.map((end, index) => {
    const start = line[index]!;
    const before = line[index - 1];
    const after = line[index + 2];
    const reach = bend(end.x - start.x);
    const a = before
      ? { x: start.x + (end.x - before.x) / 6, y: start.y + (end.y - before.y) / 6 }
      : { x: start.x + reach, y: start.y };
    const b = after
      ? { x: end.x - (after.x - start.x) / 6, y: end.y - (after.y - start.y) / 6 }
      : { x: end.x - reach, y: end.y };
    return `C${a.x},${a.y} ${b.x},${b.y} ${end.x},${end.y}`;
  });
  return `M${first.x},${first.y} ${parts.join(" ")}`;
}

/** How far a line goes straight out of a slot before it turns. */
function bend(dx: number): number {
  return dx >= 0 ? dx / 2 : 6 * Math.sqrt(-dx);
}
