import type { InjectionKey } from "vue";

/** Shows a node that a text names; given by whoever shows a workflow beside the text. */
export const SHOW_NODE: InjectionKey<(id: string) => void> = Symbol("show a node");
