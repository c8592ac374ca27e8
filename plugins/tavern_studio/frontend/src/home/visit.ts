import { ref } from "vue";

/**
 * How far somebody is who has never been here, in this browser: `sample` until the sample workflow has been run once,
 * `agent` until its agent has been opened.
 */
type Visit = "new" | "sample" | "agent" | "done";

const KEPT = "tavern.visited";
export const SAMPLE = { workflow: "greeting", agent: "assistant" };

export const visit = ref<Visit>(stateOf(localStorage.getItem(KEPT)));

export function setVisit(next: Visit): void {
  visit.value = next;
  localStorage.setItem(KEPT, next);
}

function stateOf(kept: string | null): Visit {
  if (kept === null) return "new";
  return kept === "sample" || kept === "agent" ? kept : "done";
}
