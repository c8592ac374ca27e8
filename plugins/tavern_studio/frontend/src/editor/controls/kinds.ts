import type { Slot } from "../document";
import type { NodeDefinition } from "../nodetypes";

type ControlKind =
  | "toggle"
  | "choice"
  | "number"
  | "text"
  | "lines"
  | "code"
  | "json"
  | "button"
  | "model"
  | "tool"
  | "tools"
  | "file"
  | "workflow"
  | "upload"
  | "none";

export interface Suggestion {
  value: unknown;
  label: string;
}

/** Return the control for a slot; what only comes over an edge has none. */
export function kindOf(slot: Slot): ControlKind {
  const categories = slot.matchCategories ?? [];
  if (categories.includes("Trigger")) return "button";
  if (slot.isStream) return "none";
  switch (slot.dataFlowType) {
    case "BOOLEAN":
      return "toggle";
    case "INTEGER":
    case "FLOAT":
      return "number";
    case "STRING":
      return kindOfText(slot, categories);
    case "BINARY":
      return "upload";
    default:
      return slot.dataFlowType === "ARRAY" && slot.config?.widget === "tool-picker" ? "tools" : "json";
  }
}

function kindOfText({ config: options }: Slot, categories: string[]): ControlKind {
  const config = options ?? {};
  if (config.widget === "model-picker") return "model";
  if (config.widget === "tool-picker") return "tool";
  if (config.format === "project-file" || categories.includes("FilePath")) return "file";
  if (categories.includes("ResourceId")) return "workflow";
  if (categories.includes("ComboOption")) return "choice";
  if (config.languageHint || ["Code", "Json", "Markdown"].some((one) => categories.includes(one))) return "code";
  return config.multiline || categories.includes("Prompt") ? "lines" : "text";
}

const MODEL_KEY = "activated_model_id";

/** Return a definition whose inputs for the name of a model say so: the platform's own are known by their key alone. */
export function withPickers(definition: NodeDefinition): NodeDefinition {
  const slot = definition.inputs[MODEL_KEY];
  if (slot === undefined) return definition;
  const picker = { ...slot, config: { ...slot.config, widget: "model-picker" } };
  return { ...definition, inputs: { ...definition.inputs, [MODEL_KEY]: picker } };
}

/** The language of a text that is edited with colours. */
export function languageOf(slot: Slot): string {
  if (slot.config?.languageHint) return String(slot.config.languageHint);
  return (
    ["Json", "Markdown", "JavaScript", "Python"].find((one) => slot.matchCategories?.includes(one))?.toLowerCase() ?? ""
  );
}

export function suggestionsOf(slot: Slot): Suggestion[] {
  const suggestions = slot.config?.suggestions;
  if (!Array.isArray(suggestions)) return [];
  return suggestions.map((one: unknown) =>
    typeof one === "object" && one !== null && "value" in one
      ? { value: (one as Suggestion).value, label: String((one as Suggestion).label ?? (one as Suggestion).value) }
      : { value: one, label: String(one) },
  );
}

/** Suggestions by what stands before the slash of their label: `Rounding/Floor` is “Floor” in “Rounding”. */
export function groupsOf(suggestions: Suggestion[]): Map<string, Suggestion[]> {
  const groups = new Map<string, Suggestion[]>();
  for (const { value, label } of suggestions) {
    const [, group = "", name = label] = /^([^/]+)\/(.+)$/.exec(label) ?? [];
    groups.set(group, [...(groups.get(group) ?? []), { value, label: name }]);
  }
  return groups;
}

const boundOf = (bound: unknown): number | undefined => (typeof bound === "number" ? bound : undefined);

/** Say why a number may not be the value of a slot, as the key of a message; undefined where it may. */
export function numberProblem(slot: Slot, value: number): string | undefined {
  if (!Number.isFinite(value)) return "controls.number.none";
  if (slot.dataFlowType === "INTEGER" && !Number.isInteger(value)) return "controls.number.whole";
  const [min = -Infinity, max = Infinity] = [boundOf(slot.config?.min), boundOf(slot.config?.max)];
  if (value >= min && value <= max) return undefined;
  return min === -Infinity ? "controls.number.max" : max === Infinity ? "controls.number.min" : "controls.number.range";
}

/** How many positions of a slider a hand can still tell apart. */
const POSITIONS = 1000;

/** Whether a slider can show all values of a number; `step` is what it moves by. */
export function sliderOf(slot: Slot): { min: number; max: number; step: number } | undefined {
  const [min, max] = [boundOf(slot.config?.min), boundOf(slot.config?.max)];
  const step = boundOf(slot.config?.step) ?? (slot.dataFlowType === "INTEGER" ? 1 : 0.01);
  return min !== undefined && max !== undefined && (max - min) / step <= POSITIONS ? { min, max, step } : undefined;
}

/** How a control stands on a node: beside the name, below it, as what is in it, or not at all. */
export function placeOnNode(slot: Slot): "beside" | "below" | "preview" | "none" {
  if (slot.multi || slot.matchCategories?.includes("NoDefaultEdit")) return "none";
  switch (kindOf(slot)) {
    case "none":
    case "upload":
      return "none";
    case "lines":
    case "button":
      return "below";
    case "code":
    case "tools":
      return "preview";
    case "json":
      return ["OBJECT", "ARRAY"].includes(slot.dataFlowType) ? "preview" : "none";
    default:
      return "beside";
  }
}

/** The first lines of a value, for where it is only shown. */
export function previewOf(value: unknown): string {
  if (value === undefined || value === null || value === "") return "";
  const text =
    typeof value === "string"
      ? value
      : Array.isArray(value) && value.every((one) => typeof one === "string")
        ? value.join(", ")
        : JSON.stringify(value);
  return text.split("\n").slice(0, 3).join("\n").slice(0, 200);
}
