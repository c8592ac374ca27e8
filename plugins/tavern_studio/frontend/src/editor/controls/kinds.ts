import type { Slot } from "../document";

export type ControlKind = "toggle" | "choice" | "number" | "text" | "lines" | "code" | "json" | "button" | "none";

export interface Suggestion {
  value: unknown;
  label: string;
}

/** Return the control for a slot; what only comes over an edge has none. */
export function kindOf(slot: Slot): ControlKind {
  const categories = slot.matchCategories ?? [];
  const config = slot.config ?? {};
  if (categories.includes("Trigger")) return "button";
  if (slot.isStream) return "none";
  switch (slot.dataFlowType) {
    case "BOOLEAN":
      return "toggle";
    case "INTEGER":
    case "FLOAT":
      return "number";
    case "OBJECT":
    case "ARRAY":
      return "json";
    case "STRING":
      if (categories.includes("ComboOption")) return "choice";
      if (categories.includes("Code") || (config.languageHint && config.languageHint !== "markdown")) return "code";
      return config.multiline || categories.includes("Markdown") || categories.includes("Prompt") ? "lines" : "text";
    default:
      return "json";
  }
}

export function suggestionsOf(slot: Slot): Suggestion[] {
  const given = slot.config?.suggestions;
  if (!Array.isArray(given)) return [];
  return given.map((one: unknown) =>
    typeof one === "object" && one !== null && "value" in one
      ? { value: (one as Suggestion).value, label: String((one as Suggestion).label ?? (one as Suggestion).value) }
      : { value: one, label: String(one) },
  );
}

/** Whether a control is small enough to stand on the node itself. */
export function isInline(slot: Slot): boolean {
  return !slot.multi && ["toggle", "choice", "number", "text"].includes(kindOf(slot));
}
