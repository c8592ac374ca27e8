import { h, shallowReactive, type Component, type FunctionalComponent } from "vue";
import type { PartId, Wrapper } from "../extensions/types";
import { guarded } from "./guard";
import { layersOf, type Layer } from "./layers";

const originals = shallowReactive(new Map<string, Component>());

/** Register a part of the page under its `ui:` id; plugins wrap and replace parts by these. */
export function registerPart(id: PartId, original: Component): void {
  if (originals.get(id) !== original) originals.set(id, original);
}

// What a layer makes of a component is made once, not per rendering: a component of another identity would be mounted anew.
const made = new WeakMap<Layer, WeakMap<Component, Component>>();

/** Return the component that is shown for a part: the original or its override, with all wraps around it. */
export function shownPart(id: string): Component | undefined {
  const original = originals.get(id);
  if (original === undefined) return undefined;
  const { wraps, override } = layersOf(id);
  return [...(override ? [override] : []), ...wraps].reduce(
    (inner, layer) => layered(id, layer, inner, original),
    original,
  );
}

/** What a layer makes of a component; `inner` is shown in its place once it has made a mistake. */
export function layered(id: string, layer: Layer, inner: Component, original: Component): Component {
  const known = made.get(layer) ?? new WeakMap<Component, Component>();
  made.set(layer, known);
  const found = known.get(inner) ?? guardedLayer(id, layer, inner, original);
  known.set(inner, found);
  return found;
}

function guardedLayer(id: string, layer: Layer, inner: Component, original: Component): Component {
  const where = `${layer.kind} ${id}`;
  try {
    const component = layer.kind === "wrap" ? (layer.value as Wrapper)(inner) : (layer.value as Component);
    if (component == null) throw new TypeError("the wrapper returns no component");
    return guarded(layer.owner, where, component, (attrs, slots) => h(inner, attrs, slots), original);
  } catch (error) {
    layer.owner.fail(where, error);
    return inner;
  }
}

/** Return what a plugin shows in the nodes of a type in place of their controls; nothing once that has made a mistake. */
export function nodeBody(type: string): Component | undefined {
  const layer = layersOf(`node:${type}`).override;
  return layer && layered(`node:${type}`, layer, NOTHING, NOTHING);
}

const NOTHING: FunctionalComponent = () => null;

/** Shows a registered part, with whatever stands around it: `<UiPart part="ui:StatusBar" />`. */
export const UiPart: FunctionalComponent<{ part: PartId }> = (props, { attrs, slots }) => {
  const shown = shownPart(props.part);
  return shown === undefined ? null : h(shown, attrs, slots);
};
UiPart.props = ["part"];
UiPart.inheritAttrs = false;
