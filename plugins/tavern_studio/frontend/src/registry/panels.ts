import { computed, shallowReactive, shallowRef, type Component } from "vue";
import { standing } from "./outlets";
import type { Owner } from "./owner";

export const PLACES = ["left", "bottom", "right"] as const;
export type Place = (typeof PLACES)[number];

/** A panel of a plugin. One that its manifest declares has no component before its code is there. */
export interface PanelEntry {
  key: string;
  owner: Owner;
  title: string;
  icon: string;
  place: Place;
  component?: Component;
}

const all = shallowReactive(new Map<string, PanelEntry>());
export const panels = computed(() => [...all.values()]);

const KEPT = "tavern.panels";
const open = shallowRef<Partial<Record<Place, string>>>(kept());

function kept(): Partial<Record<Place, string>> {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "{}") as Partial<Record<Place, string>>;
  } catch {
    return {};
  }
}

export interface NewPanel {
  id: string;
  title: string;
  icon?: string | null;
  place?: Place;
  component?: Component;
}

/** Add a panel; with the id of one that was declared, it gives that its content. */
export function addPanel(owner: Owner, { id, title, icon, place = "left", component }: NewPanel): () => void {
  const key = `${owner.name}.${id}`;
  const shown = component && standing(owner, `panel ${id}`, component);
  const before = all.get(key);
  const entry = { key, owner, title, icon: [...(icon || title)].slice(0, 2).join(""), place, component: shown };
  if (!icon) entry.icon = [...title].slice(0, 1).join("").toUpperCase();
  all.set(key, entry);
  return () => {
    if (all.get(key) !== entry) return;
    if (before !== undefined && before.component === undefined) all.set(key, before);
    else all.delete(key);
  };
}

/** Return the panel that is open at a place: one at a time. */
export function panelAt(place: Place): PanelEntry | undefined {
  const found = all.get(open.value[place] ?? "");
  return found?.place === place ? found : undefined;
}

export function togglePanel(panel: PanelEntry): void {
  const now = panelAt(panel.place)?.key === panel.key ? undefined : panel.key;
  open.value = { ...open.value, [panel.place]: now };
  localStorage.setItem(KEPT, JSON.stringify(open.value));
}
