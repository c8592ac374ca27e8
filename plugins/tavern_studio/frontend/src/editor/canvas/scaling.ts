import type { VueFlowStore } from "@vue-flow/core";
import { computed, onScopeDispose, watch } from "vue";

/** Below this zoom the slots of a node are no longer legible: its icon and its name stand for it. */
const LEGIBLE = 0.7;
/** Below this one names do not fit either: the icon on its colour is what is left. */
const NAMED = 0.35;
/** Below this one nothing in a node can be told apart: it is a block in its colour. */
const BLOCKS = 0.12;
/** Letters of the same size at all zooms grow in steps of this factor: each step is a picture of all of them. */
const STEP = 1.2;

/** The zoom as far as letters follow it: that of the largest step that is not larger, and 1 where slots are legible. */
export function stepOf(zoom: number): number {
  return zoom < LEGIBLE ? STEP ** Math.floor(Math.log(zoom) / Math.log(STEP)) : 1;
}

/**
 * How small nodes are seen: as classes of the canvas, and as a sheet of styles with which letters keep their size. An
 * inherited property in their place would have the browser look at every element of every node with each step.
 */
export function useScaling(flow: VueFlowStore, canvas: string) {
  const zoom = computed(() => flow.viewport.value.zoom);
  const step = computed(() => stepOf(zoom.value));
  const isFar = computed(() => zoom.value < LEGIBLE);
  const isFarther = computed(() => zoom.value < NAMED);
  const isTiny = computed(() => zoom.value < BLOCKS);
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  onScopeDispose(() => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
  });
  watch(
    [step, isFar, isFarther],
    () => {
      const within = `.graph[data-canvas=${JSON.stringify(canvas)}] .node`;
      const sized = (part: string, pixels: number) => `${within} ${part} { font-size: ${pixels / step.value}px }`;
      const rules = [sized(".face", isFarther.value ? 14 : 12), isFar.value ? sized(".result", 10) : ""];
      sheet.replaceSync(rules.join("\n"));
    },
    { immediate: true },
  );
  return { isFar, isFarther, isTiny };
}
