import { h, shallowReactive, type Component, type FunctionalComponent } from "vue";
import type { OutletName } from "../extensions/types";
import { guarded } from "./guard";
import type { Owner } from "./owner";
import PluginBadge from "./PluginBadge.vue";

interface Entry {
  component: Component;
  order: number;
  owner: Owner;
  key: number;
}

const outlets = shallowReactive(new Map<string, readonly Entry[]>());
const NONE: readonly Entry[] = [];
let next = 0;

/** Return a component of a plugin that stands by itself; when it makes a mistake, a badge names the plugin. */
export function standing(owner: Owner, where: string, component: Component): Component {
  return guarded(owner, where, component, (_attrs, _slots, error, again) =>
    h(PluginBadge, { owner, error, onAgain: again }),
  );
}

/** Put a plugin's component into a place of the page; the function that is returned takes it out. */
export function fillOutlet(owner: Owner, name: OutletName, component: Component, order = 0): () => void {
  const entry = { component: standing(owner, `outlet ${name}`, component), order, owner, key: next++ };
  const sorted = [...(outlets.get(name) ?? NONE), entry].sort(
    (a, b) => a.order - b.order || a.owner.name.localeCompare(b.owner.name),
  );
  outlets.set(name, sorted);
  return () => {
    const left = (outlets.get(name) ?? NONE).filter((one) => one !== entry);
    if (left.length > 0) outlets.set(name, left);
    else outlets.delete(name);
  };
}

/** A place that plugins may fill: `<PluginOutlet name="node:footer" />`; empty, it costs next to nothing: each
 * node has three. Attributes are given to what stands in it; `panel` names the panel that it is of. */
export const PluginOutlet: FunctionalComponent<{ name: OutletName; panel?: string }> = ({ name, panel }, { attrs }) => {
  const own = panel ? (outlets.get(`${name}[${panel}]`) ?? NONE) : NONE;
  return [...(outlets.get(name) ?? NONE), ...own].map((entry) => h(entry.component, { ...attrs, key: entry.key }));
};
PluginOutlet.props = ["name", "panel"];
PluginOutlet.inheritAttrs = false;
