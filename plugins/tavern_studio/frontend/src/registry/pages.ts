import { shallowReactive, type Component } from "vue";
import { standing } from "./outlets";
import type { Owner } from "./owner";

interface PageEntry {
  pattern: RegExp;
  names: string[];
  component: Component;
  title: string;
}

const all = shallowReactive(new Map<string, readonly PageEntry[]>());

/** Add a page of a plugin: `/board/:id` is shown at `#/x/PLUGIN/board/7`. */
export function addPage(owner: Owner, path: string, component: Component, title = owner.title): () => void {
  const names = [...path.matchAll(/:(\w+)/g)].map((match) => match[1] ?? "");
  const escaped = path.replace(/[.+*?^${}()|[\]\\]/g, "\\$&").replace(/:\w+/g, "([^/]+)");
  const pattern = new RegExp(`^/?${escaped.replace(/^\/|\/$/g, "")}/?$`);
  const entry = { pattern, names, component: standing(owner, `page ${path}`, component), title };
  all.set(owner.name, [...(all.get(owner.name) ?? []), entry]);
  return () =>
    all.set(
      owner.name,
      (all.get(owner.name) ?? []).filter((one) => one !== entry),
    );
}

/** Return the page of a plugin at a path, with its parameters. */
export function pageAt(plugin: string, path: string): (PageEntry & { parameters: Record<string, string> }) | undefined {
  for (const entry of all.get(plugin) ?? []) {
    const match = entry.pattern.exec(path);
    if (match)
      return { ...entry, parameters: Object.fromEntries(entry.names.map((name, at) => [name, match[at + 1] ?? ""])) };
  }
  return undefined;
}
