import { computed, shallowReactive, shallowRef } from "vue";
import type { Owner } from "./owner";

/** Something that a plugin puts around a part of the page or a service (`wrap`), or in its place (`override`). */
export interface Layer {
  owner: Owner;
  kind: "wrap" | "override";
  order: number;
  /** A wrapper, a component, or a service. */
  value: unknown;
}

/** Several plugins at one place: in which order they stand, the outermost first; of overrides, which one is used. */
export interface Meeting {
  target: string;
  kind: Layer["kind"];
  plugins: string[];
  /** The override that is used: none while the operator has not decided. */
  used?: string;
}

const all = shallowReactive(new Map<string, readonly Layer[]>());

/** The operator's order, the outermost plugin first. */
export const operatorOrder = shallowRef<readonly string[]>([]);

const NONE: readonly Layer[] = [];

/** Put a layer onto a part (`ui:…`), the body of a node type (`node:…`) or a service (`service:…`). */
export function addLayer(target: string, layer: Layer): () => void {
  all.set(target, [...(all.get(target) ?? NONE), layer]);
  return () => {
    const left = (all.get(target) ?? NONE).filter((one) => one !== layer);
    if (left.length > 0) all.set(target, left);
    else all.delete(target);
  };
}

/** Return what stands at a target: its wraps, the innermost first, and the override that is used. */
export function layersOf(target: string): { wraps: Layer[]; override?: Layer } {
  const layers = all.get(target) ?? NONE;
  const wraps = layers.filter((one) => one.kind === "wrap");
  return { wraps: wraps.sort(innermostFirst), override: used(layers) };
}

/** Of several plugins that replace one thing the one that the operator named first; none where none is named. */
function used(layers: readonly Layer[]): Layer | undefined {
  const last = new Map(layers.filter((one) => one.kind === "override").map((one) => [one.owner.name, one]));
  if (last.size < 2) return [...last.values()][0];
  const chosen = operatorOrder.value.find((name) => last.has(name));
  return chosen === undefined ? undefined : last.get(chosen);
}

function innermostFirst(a: Layer, b: Layer): number {
  const rank = (layer: Layer) => {
    const at = operatorOrder.value.indexOf(layer.owner.name);
    return at < 0 ? 0 : operatorOrder.value.length - at; // those that are named stand around all others
  };
  return rank(a) - rank(b) || a.order - b.order || a.owner.name.localeCompare(b.owner.name);
}

/** Where several plugins meet. */
export const meetings = computed<Meeting[]>(() =>
  [...all].flatMap(([target, layers]) =>
    (["override", "wrap"] as const).flatMap((kind) => {
      const some = layers.filter((one) => one.kind === kind).sort(innermostFirst);
      const plugins = [...new Set((kind === "wrap" ? some.reverse() : some).map((one) => one.owner.name))];
      if (plugins.length < 2) return [];
      return [{ target, kind, plugins, ...(kind === "override" && { used: used(layers)?.owner.name }) }];
    }),
  ),
);
