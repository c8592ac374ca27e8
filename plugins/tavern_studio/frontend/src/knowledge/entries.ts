import { api, ask, type Schemas } from "../api/client";
import { page } from "../api/page";

export type Entry = Schemas["KnowledgeEntry"];

/** The fields of an entry that the form has; the others are edited as JSON, and stay. */
export interface EntryFields {
  name: string;
  type: string;
  text: string;
  keywords: string[];
  tags: string[];
  priority: number;
  isEnabled: boolean;
}

export const FORMATS = ["world_info", "character_book", "lorebook_v3", "card_v1", "card_v2", "card_v3", "png"] as const;

export function fieldsOf(entry: Partial<Entry>): EntryFields {
  return {
    name: entry.displayName ?? "",
    type: entry.entry_type ?? "fact",
    text: entry.content?.value ?? "",
    keywords: entry.activation_criteria?.keywords ?? [],
    tags: entry.management_metadata?.tags ?? [],
    priority: entry.usage_metadata?.priority ?? 100,
    isEnabled: entry.management_metadata?.is_enabled ?? true,
  };
}

/** Return an entry with these fields; all else that it says stays. */
export function withFields(entry: Partial<Entry>, fields: EntryFields): Partial<Entry> {
  return {
    ...entry,
    displayName: fields.name || null,
    entry_type: fields.type || "fact",
    content: { ...entry.content, value: fields.text },
    activation_criteria: { ...entry.activation_criteria, keywords: fields.keywords },
    usage_metadata: { ...entry.usage_metadata, priority: fields.priority },
    management_metadata: {
      ...entry.management_metadata,
      tags: fields.tags,
      is_enabled: fields.isEnabled,
    },
  };
}

/** Return what people call an entry: its name, or else how its text begins. */
export function titleOf(entry: Partial<Entry>): string {
  const text = (entry.content?.value ?? "").trim().replace(/\s+/g, " ");
  return entry.displayName || (text.length > 60 ? `${text.slice(0, 59)}…` : text) || entry.id || "";
}

/** Return an id for a base that is called so. */
export function baseIdOf(name: string): string {
  return name
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_-]+/gu, "-")
    .replace(/^-+|-+$/g, "");
}

export function readEntry(base: string, entry: string): Promise<Schemas["StoredEntry"]> {
  return ask(api.GET("/api/knowledge/{base}/entries/{entry}", { params: { path: { base, entry } } }));
}

/** Write an entry: a new one, or one that is still of the revision that it was read at. */
export async function writeEntry(
  base: string,
  entry: Partial<Entry>,
  revision?: string,
): Promise<Schemas["StoredEntry"]> {
  if (entry.id && revision !== undefined) {
    const params = { path: { base, entry: entry.id }, query: { revision } as never };
    return await ask(api.PUT("/api/knowledge/{base}/entries/{entry}", { params, body: entry as never }));
  }
  const written = await ask(
    api.POST("/api/knowledge/{base}/entries", { params: { path: { base } }, body: { entries: [entry] } as never }),
  );
  return written[0]!;
}

export const exportAddress = (base: string, format: string) =>
  `${page.base}/api/knowledge/${encodeURIComponent(base)}/export?format=${format}&projectId=${encodeURIComponent(page.project.id)}`;

/** Make a base of a lorebook or a character card. */
export async function importBase(base: string, file: File): Promise<Schemas["ImportReport"]> {
  const params = { path: { base } };
  const bodySerializer = () => file;
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  return await ask(api.POST("/api/knowledge/{base}/import", { params, body: {} as never, bodySerializer, headers }));
}
