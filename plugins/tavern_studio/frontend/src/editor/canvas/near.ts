import type { VueFlowStore } from "@vue-flow/core";
import { computed, onScopeDispose, shallowReactive, toRaw, watch } from "vue";
import { LOOP, nodeOf } from "../document";
import type { Session } from "../session";

/** Workflows of up to so many nodes are drawn whole. In larger ones no more than these are drawn in full at a time. */
export const DRAWN = 150;
/** How many nodes a picture may add to those that are drawn in full. */
const STEP = 6;
/** How far beyond the view nodes are drawn in full, in parts of it; those within twice as much stay. */
const MARGIN = 0.25;

interface Place {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The nodes that a view meets which is larger by a part of itself on each side. */
export function within(places: Iterable<Place>, view: Omit<Place, "id">, margin: number): string[] {
  const [dx, dy] = [view.width * margin, view.height * margin];
  const found: string[] = [];
  for (const { id, x, y, width, height } of places) {
    if (x > view.x + view.width + dx || x + width < view.x - dx) continue;
    if (y > view.y + view.height + dy || y + height < view.y - dy) continue;
    found.push(id);
  }
  return found;
}

/**
 * Which nodes are drawn in full: in a small workflow all, in a large one those that somebody sees, a few more with each
 * picture, and none where more are seen than anybody reads. What holds the focus stays.
 */
export function useNear(session: Session, flow: VueFlowStore) {
  const near = shallowReactive(new Set<string>());
  const isLarge = computed(() => session.shown.value.nodes.length > DRAWN);
  let frame = 0;

  function* places(): Generator<Place> {
    for (const one of toRaw(flow.nodes.value)) {
      const { id, computedPosition, dimensions } = toRaw(one);
      yield { id, ...computedPosition, ...dimensions };
    }
  }

  function look(): void {
    const { x, y, zoom } = flow.viewport.value;
    const { width, height } = flow.dimensions.value;
    const view = { x: -x / zoom, y: -y / zoom, width: width / zoom, height: height / zoom };
    const all = [...places()];
    const wanted = within(all, view, 0).length > DRAWN ? [] : within(all, view, MARGIN).slice(0, DRAWN);
    const mayStay = new Set(wanted.length ? within(all, view, 2 * MARGIN) : []);
    const focused = document.activeElement?.closest<HTMLElement>(".vue-flow__node")?.dataset.id;
    for (const id of near) if (id !== focused && !mayStay.has(id)) near.delete(id);
    const lacking = wanted.filter((id) => !near.has(id));
    for (const id of lacking.slice(0, STEP)) near.add(id);
    if (lacking.length > STEP) lookSoon();
  }

  function lookSoon(): void {
    if (!isLarge.value) return;
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(look);
  }

  flow.onNodesChange((changes) => {
    if (changes.some((one) => one.type === "dimensions")) lookSoon();
  });
  watch([flow.viewport, flow.dimensions, isLarge], lookSoon, { deep: true, flush: "post" });
  onScopeDispose(() => cancelAnimationFrame(frame));

  /** Whether a node is drawn in full; a zone always is, since others stand in it. */
  function isNear(id: string): boolean {
    return !isLarge.value || near.has(id) || nodeOf(session.shown.value, id)?.type === LOOP;
  }
  return { isNear, isLarge, near };
}
