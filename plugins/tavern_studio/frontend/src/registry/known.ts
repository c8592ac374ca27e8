import { shallowReactive } from "vue";

/** How people know a plugin: its name in words, and what its manifest says under `icon`. */
export interface Known {
  displayName: string;
  icon?: string | null;
}

const known = shallowReactive(new Map<string, Known>());

/** Take down how plugins are called. */
export function know(plugins: readonly (Known & { name: string })[]): void {
  for (const { name, displayName, icon } of plugins) known.set(name, { displayName, icon });
}

/** Return how people know a plugin; by its own name alone where this page has not heard of it. */
export const knownPlugin = (name: string): Known => known.get(name) ?? { displayName: name };

/** Return the name of a plugin that people read. */
export const titleOf = (name: string): string => knownPlugin(name).displayName;
