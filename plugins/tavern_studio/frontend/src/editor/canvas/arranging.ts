import type { VueFlowStore } from "@vue-flow/core";
import { nextTick, watch } from "vue";
import { api, ask, type Schemas } from "../../api/client";
import { t } from "../../i18n";
import { attempt } from "../../kit/toasts";
import { moveNodes, nodeOf, type WorkflowNode } from "../document";
import { useDefinitions } from "../definitions";
import { straighten } from "../links";
import { slotsHeight } from "../loops";
import type { Session } from "../session";
import { sizeOf } from "./flow";

/** Pixels between the places where a node can stand. */
export const GRID = 10;
const onGrid = (at: number) => Math.round(at / GRID) * GRID;

export type Side = "left" | "right" | "top" | "bottom";
export type Axis = "x" | "y";

/** What places nodes: in layers, as the server lays them out, along a line, or with even gaps. */
export function useArranging(session: Session, flow: VueFlowStore) {
  const definitions = useDefinitions();

  /** Ask the server where nodes should be; those to `keep` stay. */
  async function layoutOf(keep: string[]): Promise<Schemas["WorkflowLayout"]> {
    const sizes = Object.fromEntries(
      flow.getNodes.value.filter((node) => node.type === "base").map((node) => [node.id, { ...node.dimensions }]),
    );
    const body = { workflow: session.document.value as never, sizes, keep };
    const { positions, zones } = await ask(api.POST("/api/layout", { body }));
    const places = Object.entries(positions).map(([id, { x, y }]) => [id, { x: onGrid(x), y: onGrid(y) }]);
    return { positions: Object.fromEntries(places), zones };
  }

  /** How large a zone must be for what was laid out in it. */
  function roomOf(
    node: WorkflowNode,
    layout: Schemas["WorkflowLayout"],
  ): { width: number; height: number } | undefined {
    const size = layout.zones?.[node.id];
    return size && { ...size, height: Math.max(size.height, slotsHeight(node)) };
  }

  /** Move nodes as a step. Points were put where the nodes were: those of edges at them go. */
  function place(label: string, places: Map<string, { x: number; y: number }>, room?: Schemas["WorkflowLayout"]): void {
    session.change(label, (before) => {
      const ends = before.edges.filter((edge) => places.has(edge.source) || places.has(edge.target));
      const straight = straighten(
        before,
        ends.map((edge) => edge.id),
      );
      const moved = moveNodes(straight, places);
      if (room === undefined) return moved;
      return { ...moved, nodes: moved.nodes.map((node) => ({ ...node, ...roomOf(node, room) })) };
    });
  }

  /** Place all nodes, or those that are selected, in layers. */
  async function arrange(): Promise<boolean> {
    const { document, selected } = session;
    const some = selected.value.size > 1 ? selected.value : undefined;
    const keep = some ? document.value.nodes.map((node) => node.id).filter((id) => !some.has(id)) : [];
    const layout = await attempt(() => layoutOf(keep));
    if (layout === undefined) return false;
    place(t("editor.arrange"), new Map(Object.entries(layout.positions)), some ? undefined : layout);
    return true;
  }

  /** Return when nodes are as large as their slots make them, which come with the definitions. */
  async function drawn(): Promise<void> {
    const { data, error } = definitions.resource;
    if (data.value === undefined && error.value === undefined)
      await new Promise<void>((done) => watch([data, error], () => done(), { once: true }));
    await nextTick();
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame); // sizes are measured between two pictures
  }

  /** Lay out the nodes that the workflow gives no place. What was done meanwhile stays. */
  async function placeUnplaced(): Promise<void> {
    const { persistence, document } = session;
    if (persistence.unplaced.value.size === 0) return;
    await drawn();
    const lacking = persistence.unplaced.value;
    const { nodes } = document.value;
    const layout = await attempt(() => layoutOf(nodes.map((node) => node.id).filter((id) => !lacking.has(id))));
    const ids = nodes.filter((node) => lacking.has(node.id) || layout?.zones?.[node.id]);
    persistence.place(
      new Map(
        ids.map((node) => [node.id, { position: layout?.positions[node.id], ...(layout && roomOf(node, layout)) }]),
      ),
    );
    await drawn();
  }

  /** The selected nodes as boxes. Nodes of different zones stand in different frames: those of the first one's count. */
  function boxes(): Box[] {
    const nodes = [...session.selected.value].flatMap((id) => nodeOf(session.document.value, id) ?? []);
    const zone = nodes[0]?.parentNode ?? null;
    return nodes
      .filter((node) => (node.parentNode ?? null) === zone)
      .map(({ id, position: { x, y } }) => {
        const { width, height } = sizeOf(flow, id);
        return { id, x, y, width, height };
      });
  }

  /** Put the selected nodes in line at one of their sides. */
  function align(side: Side): void {
    place(t(`editor.align.${side}`), aligned(boxes(), side));
  }

  /** Leave equal gaps between the selected nodes, from the first to the last. */
  function distribute(axis: Axis): void {
    place(t(`editor.distribute.${axis}`), distributed(boxes(), axis));
  }

  return { arrange, placeUnplaced, align, distribute };
}

interface Box {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

type Places = Map<string, { x: number; y: number }>;

/** Where boxes stand that are in line at the outermost of their sides. */
export function aligned(boxes: Box[], side: Side): Places {
  const [axis, length] = axisOf(side === "left" || side === "right" ? "x" : "y");
  const isFar = side === "right" || side === "bottom";
  const end = (box: Box) => box[axis] + (isFar ? box[length] : 0);
  const line = isFar ? Math.max(...boxes.map(end)) : Math.min(...boxes.map(end));
  return new Map(
    boxes.map((box) => [box.id, { x: box.x, y: box.y, [axis]: onGrid(line - (isFar ? box[length] : 0)) }]),
  );
}

/** Where boxes stand that have equal gaps between them; the first and the last stay. */
export function distributed(boxes: Box[], axis: Axis): Places {
  const [, length] = axisOf(axis);
  const sorted = [...boxes].sort((a, b) => a[axis] - b[axis]);
  const [first, last] = [sorted[0], sorted.at(-1)];
  if (first === undefined || last === undefined || sorted.length < 3) return new Map();
  const filled = sorted.slice(0, -1).reduce((sum, box) => sum + box[length], 0);
  const gap = (last[axis] - first[axis] - filled) / (sorted.length - 1);
  let at = first[axis];
  return new Map(
    sorted.map((box) => {
      const place = { x: box.x, y: box.y, [axis]: box === last ? last[axis] : onGrid(at) };
      at += box[length] + gap;
      return [box.id, place];
    }),
  );
}

const axisOf = (axis: Axis): [Axis, "width" | "height"] => [axis, axis === "x" ? "width" : "height"];
