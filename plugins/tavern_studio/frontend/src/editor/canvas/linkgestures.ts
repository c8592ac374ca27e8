import type { EdgeMouseEvent, VueFlowStore } from "@vue-flow/core";
import { onScopeDispose } from "vue";
import { t } from "../../i18n";
import { registerCommands } from "../../registry/commands";
import { cornerOf } from "../document";
import { addPoint, frameOf, middleOf, pointsOf, type Point } from "../links";
import type { Session } from "../session";

const GRID = 10;

/** What is done to edges where the pointer is. */
export function useLinks(session: Session, flow: VueFlowStore) {
  /** Where the menu of an edge was opened. */
  let pointed: { edge: string; at: Point } | undefined;

  function placeOf(event: MouseEvent | TouchEvent): Point {
    const point = "clientX" in event ? event : (event.touches[0] ?? event.changedTouches[0]!);
    return flow.screenToFlowCoordinate({ x: point.clientX, y: point.clientY });
  }

  function point(event: EdgeMouseEvent | undefined): void {
    pointed = event && { edge: event.edge.id, at: placeOf(event.event) };
    if (event === undefined || session.selectedEdges.value.has(event.edge.id)) return;
    session.selected.value = new Set();
    session.selectedEdges.value = new Set([event.edge.id]);
  }

  /** Put a reroute point on an edge: at a place of the canvas, or in the middle. */
  function reroute(id: string, at?: Point): void {
    const drawn = flow.findEdge(id);
    const { value: document } = session.document;
    const edge = document.edges.find((one) => one.id === id);
    if (drawn === undefined || edge === undefined) return;
    const corner = cornerOf(document, frameOf(document, edge));
    const inFrame = ({ x, y }: Point) => ({ x: x - corner.x, y: y - corner.y });
    const ends: [Point, Point] = [
      inFrame({ x: drawn.sourceX, y: drawn.sourceY }),
      inFrame({ x: drawn.targetX, y: drawn.targetY }),
    ];
    const { x, y } = at ? inFrame(at) : middleOf([ends[0], ...pointsOf(edge), ends[1]]);
    const place = { x: Math.round(x / GRID) * GRID, y: Math.round(y / GRID) * GRID };
    session.change(t("editor.links.reroute"), (before) => addPoint(before, id, place, ends));
  }

  /** By the keyboard a point comes where the edge is longest, and is ready to be moved by the arrows. */
  function rerouteSelected(): void {
    const [id] = session.selectedEdges.value;
    if (id === undefined) return;
    const at = pointed?.edge === id ? pointed.at : undefined;
    pointed = undefined;
    reroute(id, at);
    setTimeout(() => elementOf(id, ".point:last-of-type")?.focus(), 50);
  }

  let walked = ""; // the node whose edges are gone through

  /** Select one edge of a node after the other: first that of the selected node. */
  function selectNext(): void {
    const [node = walked] = session.selected.value;
    walked = node;
    const { into, outOf } = session.index.value;
    const edges = [...(into.get(node) ?? []), ...(outOf.get(node) ?? [])].map((edge) => edge.id);
    const [last = ""] = session.selectedEdges.value;
    const next = edges[(edges.indexOf(last) + 1) % edges.length];
    if (next === undefined) return;
    session.selected.value = new Set();
    session.selectedEdges.value = new Set([next]);
    elementOf(next)?.focus();
  }

  const elementOf = (edge: string, part = "") =>
    flow.vueFlowRef.value?.querySelector<SVGElement>(`.vue-flow__edge[data-id="${CSS.escape(edge)}"] ${part}`);

  const one = () => session.selectedEdges.value.size === 1;
  onScopeDispose(
    registerCommands(
      {
        id: "editor.nextEdge",
        title: "editor.links.next",
        keys: "e",
        when: () => session.selected.value.size === 1 || one(),
        run: selectNext,
      },
      { id: "editor.reroute", title: "editor.links.reroute", keys: "r", when: one, run: rerouteSelected },
    ),
  );

  return { point, addAt: ({ edge, event }: EdgeMouseEvent) => reroute(edge.id, placeOf(event)) };
}
