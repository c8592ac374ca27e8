import { defineStore } from "pinia";
import { kept } from "../kit/kept";
import { kindOf } from "./controls/kinds";
import { fullType, type NodeDefinition } from "./nodetypes";

/** What the library knows of a person: the node types that they like, and used last; kept in this browser. */
export const useLibrary = defineStore("library", () => {
  const favourites = kept<string[]>("tavern.favourites", []);
  const recent = kept<string[]>("tavern.recent", []);

  function toggle(type: string): void {
    const those = favourites.value;
    favourites.value = those.includes(type) ? those.filter((one) => one !== type) : [...those, type];
  }

  const used = (type: string) =>
    (recent.value = [type, ...recent.value.filter((one) => one !== type)].slice(0, RECENT));

  return { favourites, recent, toggle, used };
});

const RECENT = 6;

/** What a node type deals with, by which the library can be narrowed: its own tags, and what its slots show. */
export function tagsOf(definition: NodeDefinition): string[] {
  const found = new Set(definition.tags ?? []);
  const { inputs = {}, outputs = {}, configSchema } = definition;
  const taken = [...Object.values(inputs), ...Object.values(configSchema ?? {})];
  if ([...taken, ...Object.values(outputs)].some((slot) => slot.isStream)) found.add("stream");
  for (const [tag, kinds] of KINDS) if (taken.some((slot) => kinds.includes(kindOf(slot)))) found.add(tag);
  if (definition.modes) found.add("modes");
  if (definition.namespace !== "core") found.add(definition.namespace);
  return [...found];
}

const KINDS: [string, string[]][] = [
  ["model", ["model"]],
  ["tools", ["tool", "tools"]],
  ["files", ["file"]],
  ["code", ["code"]],
];

/** The types that were used last, then favourites, then the others. */
export function usedFirst(definitions: NodeDefinition[]): NodeDefinition[] {
  const { recent, favourites } = useLibrary();
  const order = [...new Set([...recent, ...favourites])];
  const rank = (one: NodeDefinition) => (order.includes(fullType(one)) ? order.indexOf(fullType(one)) : order.length);
  return [...definitions].sort((a, b) => rank(a) - rank(b));
}
