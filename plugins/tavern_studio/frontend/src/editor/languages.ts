import type { NodeDefinition } from "./definitions";

/** Under which keys a definition has texts for people; the server translates the same ones. */
const SHOWN = new Set(["displayName", "description", "category", "label", "placeholder", "tooltip"]);

/** Return a node type with its names and descriptions in a language, as far as its plugin has them in it. */
export function inLanguage(definition: NodeDefinition, language: string): NodeDefinition {
  const texts = definition.texts?.[language];
  return texts === undefined ? definition : (translate(definition, texts) as NodeDefinition);
}

function translate(value: unknown, texts: Record<string, string>, key = ""): unknown {
  if (typeof value === "string") return SHOWN.has(key) ? (texts[value] ?? value) : value;
  if (Array.isArray(value)) return value.map((part) => translate(part, texts));
  if (value === null || typeof value !== "object") return value;
  const parts = Object.entries(value).map(([name, part]) => [name, name === "texts" ? part : translate(part, texts, name)]);
  return Object.fromEntries(parts);
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
