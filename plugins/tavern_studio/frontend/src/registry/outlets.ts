import { h, shallowReactive, type Component, type FunctionalComponent } from "vue";

interface Entry {
  component: Component;
  order: number;
}

const outlets = shallowReactive(new Map<string, Entry[]>());

/** Put a component into a place of the page; the function that is returned takes it out. */
export function fillOutlet(name: string, component: Component, order = 0): () => void {
  const entry = { component, order };
  outlets.set(name, [...(outlets.get(name) ?? []), entry].sort((a, b) => a.order - b.order));
  return () => outlets.set(name, (outlets.get(name) ?? []).filter((one) => one !== entry));
}

/** A place that plugins may fill: `<PluginOutlet name="node:footer" />`; empty, it costs next to nothing: each
 * node has three. Attributes are given to what stands in it; `panel` names the panel that it is of. */
export const PluginOutlet: FunctionalComponent<{ name: string; panel?: string }> = ({ name, panel }, { attrs }) => {
  const own = panel ? (outlets.get(`${name}[${panel}]`) ?? []) : [];
  return [...(outlets.get(name) ?? []), ...own].map((entry) => h(entry.component, attrs));
};
PluginOutlet.props = ["name", "panel"];
PluginOutlet.inheritAttrs = false;
