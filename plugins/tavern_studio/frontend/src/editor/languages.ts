import type { NodeDefinition } from "./nodetypes";

/** Under which keys a definition has texts for people; the server translates the same ones. */
const SHOWN = new Set(["displayName", "description", "category", "label", "placeholder", "tooltip"]);

/** What of a definition is data, by where it is and its key: it is the same in all languages, whatever keys it has. */
const DATA = new Set(["/configValues", "config/default", "suggestions/value"]);

/** Return a node type with its names and descriptions in a language, as far as its plugin has them in it. */
export function inLanguage(definition: NodeDefinition, language: string): NodeDefinition {
  const texts = definition.texts?.[language];
  return texts === undefined ? definition : (translate(definition, texts) as NodeDefinition);
}

function translate(value: unknown, texts: Record<string, string>, key = ""): unknown {
  if (typeof value === "string") return SHOWN.has(key) && Object.hasOwn(texts, value) ? texts[value] : value;
  if (Array.isArray(value)) return value.map((part) => translate(part, texts, key));
  if (value === null || typeof value !== "object") return value;
  const isKept = (name: string) => DATA.has(`${key}/${name}`) || (key === "" && name === "texts");
  return Object.fromEntries(
    Object.entries(value).map(([name, part]) => [name, isKept(name) ? part : translate(part, texts, name)]),
  );
}

/** Return the names of a node type in the languages of its texts, the one of its definition too. */
export function namesOf(definition: NodeDefinition): string[] {
  const found: string[] = [];
  for (const texts of Object.values(definition.texts ?? {})) {
    for (const [text, said] of Object.entries(texts)) {
      if (text === definition.displayName || said === definition.displayName) found.push(text, said);
    }
  }
  return found;
}
