import { shallowRef } from "vue";

/** Where a node is to be added, and what it is to be connected with. */
export interface PickOptions {
  /** On the canvas; in its middle where none is said. */
  place?: { x: number; y: number };
  /** On the screen: where the list opens. */
  at?: { x: number; y: number };
  from?: { nodeId: string; handleId: string; handleType: "source" | "target" };
}

/** What the picker of nodes is asked for; set by gestures on the canvas. */
export const asked = shallowRef<PickOptions>();

export function openPicker(options: PickOptions): void {
  asked.value = options;
}
