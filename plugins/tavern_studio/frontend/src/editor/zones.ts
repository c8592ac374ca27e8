import {
  changeNode,
  cornerOf,
  GROUP_INPUT,
  GROUP_OUTPUT,
  LOOP,
  loopAround,
  moveNodes,
  nodeOf,
  type WorkflowDocument,
  type WorkflowNode,
} from "./document";
import { moveInto, withInside } from "./grouping";
import { ROOM, slotsHeight } from "./loops";

export interface Size {
  width: number;
  height: number;
}

type SizeOf = (id: string) => Size;

const ZONE = { width: 600, height: 300 };

export const zoneSize = (node: WorkflowNode | undefined): Size => ({
  width: node?.width ?? ZONE.width,
  height: node?.height ?? ZONE.height,
});

/** Nodes were moved: those whose middle lies in a zone now belong to it, others to none; zones grow around what is theirs. */
export function assignZones(
  document: WorkflowDocument,
  moved: Map<string, { x: number; y: number }>,
  sizeOf: SizeOf,
): WorkflowDocument {
  const placed = moveNodes(document, moved);
  const assigned = [...moved.keys()].reduce((next, id) => {
    const node = nodeOf(next, id);
    if (node === undefined || (node.parentNode && moved.has(node.parentNode))) return next;
    return moveInto(next, id, zoneAt(next, node, sizeOf(id)));
  }, placed);
  const grown = new Set([...moved.keys()].flatMap((id) => nodeOf(assigned, id)?.parentNode ?? []));
  return [...grown].reduce((next, zone) => enclose(next, zone, sizeOf), assigned);
}

/** The zone in which the middle of a node lies. */
function zoneAt(document: WorkflowDocument, node: WorkflowNode, size: Size): string | null {
  if (node.type === GROUP_INPUT || node.type === GROUP_OUTPUT) return null;
  const corner = cornerOf(document, node.parentNode ?? null);
  const middle = { x: corner.x + node.position.x + size.width / 2, y: corner.y + node.position.y + size.height / 2 };
  return zoneOf(document, middle, withInside(document, [node.id]));
}

/** The innermost zone in which a point of the canvas lies, of those that are none of `own`. */
export function zoneOf(
  document: WorkflowDocument,
  point: { x: number; y: number },
  own?: ReadonlySet<string>,
): string | null {
  const found = document.nodes.filter((zone) => {
    if (zone.type !== LOOP || own?.has(zone.id)) return false;
    const at = cornerOf(document, zone.id);
    const { width, height } = zoneSize(zone);
    return point.x >= at.x && point.x <= at.x + width && point.y >= at.y && point.y <= at.y + height;
  });
  return found.sort((a, b) => depthOf(document, b) - depthOf(document, a))[0]?.id ?? null;
}

function depthOf(document: WorkflowDocument, node: WorkflowNode): number {
  const around = nodeOf(document, loopAround(document, node.id) ?? "");
  return around ? 1 + depthOf(document, around) : 0;
}

/** Let a zone, and the zones around it, reach around all that lies in it. */
export function enclose(document: WorkflowDocument, id: string, sizeOf: SizeOf): WorkflowDocument {
  const zone = nodeOf(document, id);
  const inside = document.nodes.filter((node) => node.parentNode === id);
  if (zone?.type !== LOOP || inside.length === 0) return document;
  const left = Math.max(0, ...inside.map((node) => ROOM.left - node.position.x));
  const up = Math.max(0, ...inside.map((node) => ROOM.top - node.position.y));
  const { width, height } = leastSize(document, id, sizeOf);
  const now = zoneSize(zone);
  let next = document;
  if (left || up) {
    const back = new Map(inside.map((node) => [node.id, { x: node.position.x + left, y: node.position.y + up }]));
    next = moveNodes(next, back.set(id, { x: zone.position.x - left, y: zone.position.y - up }));
  }
  const size = { width: Math.max(now.width + left, width + left), height: Math.max(now.height + up, height + up) };
  if (size.width !== now.width || size.height !== now.height) next = changeNode(next, id, () => size);
  return next === document || !zone.parentNode ? next : enclose(next, zone.parentNode, sizeOf);
}

/** How small a zone can be and still reach around what lies in it. */
export function leastSize(document: WorkflowDocument, id: string, sizeOf: SizeOf): Size {
  const inside = document.nodes.filter((node) => node.parentNode === id);
  const zone = nodeOf(document, id);
  // An inner zone may just have grown.
  const drawn = (node: WorkflowNode) => (node.type === LOOP ? zoneSize(node) : sizeOf(node.id));
  return {
    width: Math.max(
      ROOM.left + ROOM.right + 60,
      ...inside.map((node) => node.position.x + drawn(node).width + ROOM.right),
    ),
    height: Math.max(
      zone ? slotsHeight(zone) : 0,
      ...inside.map((node) => node.position.y + drawn(node).height + ROOM.bottom),
    ),
  };
}
