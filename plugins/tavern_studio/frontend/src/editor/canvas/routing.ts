import { getBezierPath, Position } from "@vue-flow/core";
import { shallowRef, type InjectionKey, type ShallowRef } from "vue";

/** Where nodes stand on the canvas, apart from zones, in which others do. */
export interface Box {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

/** The boxes that edges are led around. They are another list once nodes have come to rest elsewhere. */
export const BOXES: InjectionKey<ShallowRef<readonly Box[]>> = Symbol("boxes");
export const NO_BOXES = shallowRef<readonly Box[]>([]);

/** The distance that an edge keeps from nodes. */
const GAP = 20;
const CORNER = 10;
/** Points of a curve that are looked at. */
const SAMPLES = 16;

/** The line of an edge from an output to an input: a curve where that is free, or else a line around the nodes in its way. */
export function edgePath(from: Point, to: Point, ends: readonly [string, string], boxes: readonly Box[]): string {
  const curve = () =>
    getBezierPath({
      sourceX: from.x,
      sourceY: from.y,
      sourcePosition: Position.Right,
      targetX: to.x,
      targetY: to.y,
      targetPosition: Position.Left,
    })[0];
  const isBack = to.x < from.x + GAP;
  const near = boxes.filter((box) => isNear(box, from, to) && (isBack || !ends.includes(box.id)));
  if (!near.some((box) => isBack || isOnCurve(box, from, to))) return curve();
  const lanes = [from.y, to.y, (from.y + to.y) / 2];
  for (const { y, height } of near) lanes.push(y - GAP, y + height + GAP);
  let best: { points: Point[]; cost: number } | undefined;
  for (const lane of lanes) {
    const points = throughLane(from, to, lane);
    const cost = costOf(points, near);
    if (best === undefined || cost < best.cost) best = { points, cost };
  }
  return rounded(best!.points);
}

/** Out of the node, along a horizontal lane, and into the other one. */
function throughLane(from: Point, to: Point, lane: number): Point[] {
  const [out, into] = [from.x + GAP, to.x - GAP];
  return [from, { x: out, y: from.y }, { x: out, y: lane }, { x: into, y: lane }, { x: into, y: to.y }, to];
}

/** How long a line is; one that goes through nodes is worse than any that is longer. */
function costOf(points: Point[], boxes: readonly Box[]): number {
  let cost = 0;
  for (let index = 1; index < points.length; index++) {
    const [a, b] = [points[index - 1]!, points[index]!];
    cost += Math.abs(a.x - b.x) + Math.abs(a.y - b.y);
    for (const box of boxes) if (meets(box, a, b)) cost += 10_000;
  }
  return cost;
}

const LOOSE = 2;

/** Whether a horizontal or vertical line goes through a box. */
function meets({ x, y, width, height }: Box, a: Point, b: Point): boolean {
  return (
    Math.max(a.x, b.x) > x + LOOSE &&
    Math.min(a.x, b.x) < x + width - LOOSE &&
    Math.max(a.y, b.y) > y + LOOSE &&
    Math.min(a.y, b.y) < y + height - LOOSE
  );
}

function isNear({ x, y, width, height }: Box, from: Point, to: Point): boolean {
  const room = 3 * GAP;
  return (
    x < Math.max(from.x, to.x) + room &&
    x + width > Math.min(from.x, to.x) - room &&
    y < Math.max(from.y, to.y) + room &&
    y + height > Math.min(from.y, to.y) - room
  );
}

/** Whether the curve to the right goes through a box; its handles are halfway between the ends. */
function isOnCurve({ x, y, width, height }: Box, from: Point, to: Point): boolean {
  for (let index = 1; index < SAMPLES; index++) {
    const t = index / SAMPLES;
    const u = 1 - t;
    const middle = (from.x + to.x) / 2;
    const atX = u * u * u * from.x + 3 * u * u * t * middle + 3 * u * t * t * middle + t * t * t * to.x;
    const atY = u * u * (u + 3 * t) * from.y + t * t * (t + 3 * u) * to.y;
    if (atX > x && atX < x + width && atY > y && atY < y + height) return true;
  }
  return false;
}

/** A line of horizontal and vertical parts with round corners. */
function rounded(points: Point[]): string {
  const kept = points.filter(
    ({ x, y }, index) => index === 0 || x !== points[index - 1]!.x || y !== points[index - 1]!.y,
  );
  let path = `M ${kept[0]!.x},${kept[0]!.y}`;
  for (let index = 1; index < kept.length - 1; index++) {
    const [before, at, after] = [kept[index - 1]!, kept[index]!, kept[index + 1]!];
    const near = towards(at, before);
    const next = towards(at, after);
    path += ` L ${near.x},${near.y} Q ${at.x},${at.y} ${next.x},${next.y}`;
  }
  const last = kept.at(-1)!;
  return `${path} L ${last.x},${last.y}`;
}

/** The place on the way from a corner to another point where the corner begins to be round. */
function towards(at: Point, other: Point): Point {
  const length = Math.hypot(other.x - at.x, other.y - at.y) || 1;
  const part = Math.min(CORNER, length / 2) / length;
  return { x: at.x + (other.x - at.x) * part, y: at.y + (other.y - at.y) * part };
}
