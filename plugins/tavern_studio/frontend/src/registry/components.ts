import { h, shallowReactive, type Component, type FunctionalComponent } from "vue";

/** Makes a component of the one that it stands around. */
type Wrapper = (original: Component) => Component;

interface Part {
  original: Component;
  override?: Component;
  wraps: Wrapper[];
  shown: Component;
}

const parts = shallowReactive(new Map<string, Part>());

/** Register a part of the page under its `ui:` id; plugins wrap and replace parts by these. */
export function registerPart(id: string, original: Component): void {
  parts.set(id, { original, wraps: [], shown: original });
}

/** Put a wrapper around a part; the function that is returned takes it away. */
export function wrapPart(id: string, wrapper: Wrapper): () => void {
  return change(id, (part) => ({ ...part, wraps: [...part.wraps, wrapper] }), (part) => ({
    ...part,
    wraps: part.wraps.filter((one) => one !== wrapper),
  }));
}

/** Replace a part; the function that is returned puts the original back. */
export function overridePart(id: string, override: Component): () => void {
  return change(id, (part) => ({ ...part, override }), (part) => ({ ...part, override: undefined }));
}

function change(id: string, make: (part: Part) => Part, undo: (part: Part) => Part): () => void {
  const apply = (how: (part: Part) => Part) => {
    const part = parts.get(id);
    if (part === undefined) throw new Error(`there is no part ${id}`);
    const next = how(part);
    // Made once, not per rendering: a component of another identity would be mounted anew.
    const shown = next.wraps.reduce<Component>((inner, wrapper) => wrapper(inner), next.override ?? next.original);
    parts.set(id, { ...next, shown });
  };
  apply(make);
  return () => apply(undo);
}

export function partIds(): string[] {
  return [...parts.keys()];
}

/** Shows a registered part, with whatever stands around it: `<UiPart part="ui:StatusBar" />`. */
export const UiPart: FunctionalComponent<{ part: string }> = (props, { attrs, slots }) => {
  const part = parts.get(props.part);
  return part === undefined ? null : h(part.shown, attrs, slots);
};
UiPart.props = ["part"];
UiPart.inheritAttrs = false;
