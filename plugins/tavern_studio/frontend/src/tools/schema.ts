import type { Slot } from "../editor/document";

/** The part of a JSON Schema that a form is made of. */
export interface Field {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  readOnly?: boolean;
}

export interface Parameters {
  properties?: Record<string, Field>;
  required?: string[];
}

const TYPES: Record<string, Slot["dataFlowType"]> = {
  string: "STRING",
  integer: "INTEGER",
  number: "FLOAT",
  boolean: "BOOLEAN",
  array: "ARRAY",
  object: "OBJECT",
};

/** Return a property of a schema as a slot, so that it has the same control as an input of a node. */
export function slotOf(key: string, field: Field): Slot {
  const named = Array.isArray(field.type) ? field.type.find((one) => one !== "null") : field.type;
  const type = named ?? (field.enum?.every((one) => typeof one === "string") ? "string" : undefined);
  const isLong = type === "string" && (field.maxLength === undefined || field.maxLength > 4000);
  return {
    dataFlowType: TYPES[type ?? ""] ?? "WILDCARD",
    displayName: field.title ?? key,
    description: field.description,
    matchCategories: field.enum ? ["ComboOption"] : [],
    config: {
      ...(field.default !== undefined && { default: field.default }),
      ...(field.enum && { suggestions: field.enum.map((value) => ({ value, label: String(value) })) }),
      ...(isLong && { multiline: true }),
    },
  };
}
