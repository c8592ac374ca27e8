import type { Schemas } from "../api/client";
import type { Field, Parameters } from "./schema";

/** A tool file as JSON. What the form does not know of stays as it is. */
export type ToolDocument = Record<string, unknown>;

export type Problem = Schemas["ToolFileProblem"];

export const NEW_KINDS = ["script", "node", "workflow"] as const;
export type NewKind = (typeof NEW_KINDS)[number];

/** The types of parameters that the table has; others are edited as JSON. */
export const TYPES = ["string", "integer", "number", "boolean", "array", "object", "any"] as const;

/** A parameter as a row of the table. */
export interface Row {
  name: string;
  type: string;
  required: boolean;
  description: string;
  field: Field;
}

const LANGUAGES: Record<string, string> = {
  py: "python",
  js: "nodejs",
  mjs: "nodejs",
  cjs: "nodejs",
  ts: "bun",
  mts: "bun",
};

const CODE = `def run(text: str, times: int = 1) -> str:
    """What the tool does, and when it is to be called.

    Args:
        text: What to repeat.
        times: How often.
    """
    return text * times
`;

export function newSource(kind: NewKind): { text: string; code: string } {
  const implementation = {
    script: { type: "script", scriptPath: "", entryPoint: "run" },
    node: { type: "node", nodeType: "" },
    workflow: { type: "workflow", workflowId: "" },
  };
  return {
    text: textOf({ id: "", description: "", implementation: implementation[kind] }),
    code: kind === "script" ? CODE : "",
  };
}

export function textOf(document: ToolDocument): string {
  return JSON.stringify(document, null, 2) + "\n";
}

/** Return the document of a text; undefined for one that is no JSON object, or has comments, which a form would lose. */
export function documentOf(text: string): ToolDocument | undefined {
  try {
    const found: unknown = JSON.parse(text);
    return isObject(found) ? found : undefined;
  } catch {
    return undefined;
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return what stands at a place of a document. */
export function at(document: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((found, key) => (isObject(found) ? found[key] : undefined), document);
}

/** Return a document with another value at a place; `undefined`, and what is left empty by it, goes. */
export function having(document: ToolDocument, path: string[], value: unknown): ToolDocument {
  const [key, ...rest] = path as [string, ...string[]];
  const inner = document[key];
  const now = rest.length > 0 ? having(isObject(inner) ? inner : {}, rest, value) : value;
  const isGone = now === undefined || (rest.length > 0 && Object.keys(now as object).length === 0);
  if (!isGone) return { ...document, [key]: now };
  return Object.fromEntries(Object.entries(document).filter(([name]) => name !== key));
}

/** Return under which key a tool says how it is carried out: files are written in two forms. */
export function implementationKey(document: ToolDocument): string {
  return isObject(document.handler) && !isObject(document.implementation) ? "handler" : "implementation";
}

export function idKey(document: ToolDocument): string {
  return document.toolId !== undefined && document.id === undefined ? "toolId" : "id";
}

export function languageOf(document: ToolDocument): string {
  const [said, path] = ["language", "scriptPath"].map((key) => at(document, implementationKey(document), key));
  if (typeof said === "string") return said;
  return LANGUAGES[typeof path === "string" ? path.replace(/^.*\./, "") : ""] ?? "python";
}

/** Return a name for the file, or the script, of a tool with this id. */
export function nameOf(id: string): string {
  const plain = id.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return plain.toLowerCase();
}

/** Return a schema's parameters as rows. */
export function rowsOf(schema: unknown): Row[] {
  const { properties, required } = (isObject(schema) ? schema : {}) as Parameters;
  return Object.entries(isObject(properties) ? properties : {}).map(([name, value]) => {
    const field: Field = isObject(value) ? value : {};
    const type = typeof field.type === "string" ? field.type : "any";
    return {
      name,
      type,
      required: Array.isArray(required) && required.includes(name),
      description: field.description ?? "",
      field,
    };
  });
}

/** Whether the table shows all that a row's schema says; of others it changes no more than what it shows. */
export function isSimple(row: Row): boolean {
  const known = ["type", "title", "description", "default", "enum"];
  return !Array.isArray(row.field.type) && Object.keys(row.field).every((key) => known.includes(key));
}

/** Return a schema whose parameters are these rows; all else that it says stays. */
export function schemaOf(schema: unknown, rows: Row[]): Record<string, unknown> {
  const { required: _, properties: __, ...rest } = isObject(schema) ? schema : {};
  const required = rows.filter((row) => row.required).map((row) => row.name);
  return {
    type: "object",
    ...rest,
    properties: Object.fromEntries(rows.map((row) => [row.name, fieldOf(row)])),
    ...(required.length > 0 && { required }),
  };
}

function fieldOf(row: Row): Field {
  const { type, description: _, ...rest } = row.field;
  const kept = Array.isArray(type) && row.type === "any" ? type : row.type === "any" ? undefined : row.type;
  const isOther = typeof type === "string" && type !== row.type;
  const { default: was, enum: choices, ...plain } = rest;
  return {
    ...(kept !== undefined && { type: kept }),
    ...(row.description && { description: row.description }),
    ...plain,
    ...(!isOther && was !== undefined && { default: was }),
    ...(!isOther && choices !== undefined && { enum: choices }),
  };
}

/** Return a name that no row has. */
export function freeName(rows: Row[]): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? "value" : `value${number}`;
    if (!rows.some((row) => row.name === name)) return name;
  }
}

/** Return a document with what was drafted from its code. What a person wrote about the tool or a parameter stays. */
export function withDraft(document: ToolDocument, draft: Schemas["ToolDraft"]): ToolDocument {
  const before = new Map(rowsOf(document.parameters).map((row) => [row.name, row]));
  const rows = rowsOf(draft.parameters).map((row) => ({
    ...row,
    description: row.description || before.get(row.name)?.description || "",
  }));
  let found = having(document, [implementationKey(document), "entryPoint"], draft.entryPoint ?? undefined);
  if (!document.displayName && draft.displayName) found = having(found, ["displayName"], draft.displayName);
  if (!document.description && draft.description) found = having(found, ["description"], draft.description);
  if (rows.length > 0 || document.parameters === undefined)
    found = having(found, ["parameters"], schemaOf(draft.parameters, rows));
  return draft.output ? having(found, ["output"], draft.output) : found;
}

/** Return the problems at a place of the document, or below it. */
export function problemsAt(problems: Problem[], ...path: string[]): Problem[] {
  return problems.filter((problem) => path.every((key, index) => problem.location?.[index] === key));
}

/** Return a problem in words, without the place that stands before them. */
export function said(problem: Problem): string {
  const words = problem.message.replace(/^\$\S*: /, "");
  return problem.line != null && problem.location?.[0] === "code" ? `${problem.line}: ${words}` : words;
}

/** Return the texts of a list; none of what is no list. */
export function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}
