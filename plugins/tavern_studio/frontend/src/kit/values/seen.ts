import { page } from "../../api/page";

/** The handle of bytes that are kept apart, as the server sends it. */
export interface BlobHandle {
  type: "blob";
  hash: string;
  mediaType: string;
  length: number;
}

/** A value as what it is to somebody who looks at it. */
export type Seen =
  | { kind: "image" | "audio" | "video" | "file"; url: string; mediaType: string; length?: number }
  | { kind: "number" | "text"; text: string }
  | { kind: "plot"; numbers: number[] }
  | { kind: "table"; columns: string[]; rows: unknown[][] }
  | { kind: "json"; value: unknown };

const MAX_COLUMNS = 8;
/** Fewer numbers say more as numbers. */
const MIN_PLOTTED = 4;
const DATA_URL = /^data:((?:image\/(?:png|jpeg|webp|gif))|(?:audio|video)\/[\w.+-]+);base64,/;

/** Return the handle that a value is, if it is one. */
export function blobOf(value: unknown): BlobHandle | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { type, hash, mediaType } = value as Partial<BlobHandle>;
  const isHandle = type === "blob" && typeof hash === "string" && typeof mediaType === "string";
  return isHandle ? (value as BlobHandle) : undefined;
}

/** Say what a value is to somebody who looks at it; undefined where there is none. */
export function seenAs(value: unknown): Seen | undefined {
  if (value === undefined || value === null) return undefined;
  const blob = blobOf(value);
  if (blob) return { kind: mediumOf(blob.mediaType), url: blobUrl(blob), ...blob };
  if (typeof value === "string") {
    const mediaType = DATA_URL.exec(value)?.[1];
    return mediaType ? { kind: mediumOf(mediaType), url: value, mediaType } : { kind: "text", text: value };
  }
  if (typeof value === "number" || typeof value === "boolean") return { kind: "number", text: String(value) };
  return Array.isArray(value) ? (asPlot(value) ?? asTable(value) ?? { kind: "json", value }) : { kind: "json", value };
}

function blobUrl({ hash, mediaType }: BlobHandle): string {
  return `${page.base}/api/blobs/${hash}?${new URLSearchParams({ projectId: page.project.id, mediaType })}`;
}

function mediumOf(mediaType: string): "image" | "audio" | "video" | "file" {
  const [medium] = mediaType.split("/");
  return medium === "image" || medium === "audio" || medium === "video" ? medium : "file";
}

function asPlot(value: unknown[]): Seen | undefined {
  const isPlot = value.length >= MIN_PLOTTED && value.every((one) => typeof one === "number" && Number.isFinite(one));
  return isPlot ? { kind: "plot", numbers: value as number[] } : undefined;
}

/** A list of records, or of rows that are equally long. */
function asTable(value: unknown[]): Seen | undefined {
  const [first] = value;
  if (Array.isArray(first)) {
    const isEven = value.every((one) => Array.isArray(one) && one.length === first.length);
    const isTable = isEven && value.length > 1 && first.length > 1 && first.length <= MAX_COLUMNS;
    return isTable
      ? { kind: "table", columns: first.map((_, index) => String(index + 1)), rows: value as unknown[][] }
      : undefined;
  }
  if (!value.length || !value.every((one) => typeof one === "object" && one !== null && !Array.isArray(one)))
    return undefined;
  const records = value as Record<string, unknown>[];
  const columns = [...new Set(records.slice(0, 100).flatMap((one) => Object.keys(one)))];
  if (columns.length === 0 || columns.length > MAX_COLUMNS) return undefined;
  return { kind: "table", columns, rows: records.map((one) => columns.map((column) => one[column])) };
}

/** A number as it is read at a glance. */
export const shortNumber = (value: number) => String(Number(value.toPrecision(6)));

/** A value in one line, cut. */
export function inLine(value: unknown, most = 120): string {
  if (typeof value === "number") return shortNumber(value);
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
