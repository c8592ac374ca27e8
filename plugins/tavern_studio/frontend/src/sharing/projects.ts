import { shallowRef } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { page } from "../api/page";
import { download } from "../kit/files";

type ImportResult = Schemas["ImportResult"];

/** A project that somebody handed over, and what of it would come; it waits for their decision. */
export interface HandedOver {
  file: File;
  plan: ImportResult;
}

export const handedOver = shallowRef<HandedOver>();
/** Whether the dialogue is open that gives the project of this page as a file. */
export const isExporting = shallowRef(false);

/** Whether a value is a project, which is shown before any of it comes. */
export function isProject(value: unknown): boolean {
  return value !== null && typeof value === "object" && "format" in value && value.format === "tavern-project";
}

interface Wanted {
  only?: string[];
  replace?: boolean;
  dryRun?: boolean;
}

/** Hand a file over to the server's recogniser. Raises what it refuses. */
export async function handOver(file: File, { only = [], ...wanted }: Wanted = {}): Promise<ImportResult> {
  const query = { name: file.name.slice(-300), ...wanted, ...(only.length > 0 && { only: only.join(",") }) };
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  const options = { params: { query }, headers, bodySerializer: () => file, body: {} as never };
  return await ask(api.POST("/api/imports", options as never));
}

/** Give the project to the person as a file, or some parts of it. */
export async function exportProject(parts: string[]): Promise<void> {
  const query = { parts: parts.join(",") };
  const found = await ask(api.GET("/api/project-archive", { params: { query } }));
  download(`${page.project.name}.tavern-project.json`, found);
}

const part = (path: string) => (path.includes("/") ? path.slice(0, path.indexOf("/")) : "");

/** What of a project would come, by its folders; those with something new first. */
export function partsOf(plan: ImportResult): { name: string; things: NonNullable<ImportResult["things"]> }[] {
  const names = [...new Set((plan.things ?? []).map(({ id }) => part(id)))];
  return names.map((name) => ({ name, things: (plan.things ?? []).filter(({ id }) => part(id) === name) }));
}

/** The patterns of what is in some of the parts of a project. */
export function patternsOf(plan: ImportResult, parts: string[]): string[] {
  const beside = parts.includes("") ? (plan.things ?? []).filter(({ id }) => part(id) === "").map(({ id }) => id) : [];
  return [...parts.filter(Boolean).map((name) => `${name}/*`), ...beside];
}

/** Bytes as people read them. */
export function sizeOf(bytes: number): string {
  const [number, unit] = bytes < 1e6 ? [bytes / 1e3, "kilobyte"] : [bytes / 1e6, "megabyte"];
  return new Intl.NumberFormat(document.documentElement.lang, {
    style: "unit",
    unit,
    maximumFractionDigits: 1,
  }).format(number);
}
