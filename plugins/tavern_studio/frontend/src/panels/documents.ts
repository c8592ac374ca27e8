import { api, ask, askWhole, type Schemas } from "../api/client";
import { canonical } from "../editor/comparison";
import { savedOnce } from "../kit/stale";
import { firstFree } from "../kit/words";

/** A panel as its file has it; what this page does not know of stays. */
export interface PanelDocument {
  name: string;
  description?: string;
  published?: boolean;
  elements: PanelElement[];
  [other: string]: unknown;
}
export type PanelElement = Schemas["PanelElement"];
export type ShownPanel = Schemas["ShownPanel"];
export type ShownElement = Schemas["ShownElement"];

interface Read {
  document: PanelDocument;
  tag: string;
}

const withElements = (data: unknown): PanelDocument => {
  const document = data as Omit<PanelDocument, "elements"> & { elements?: PanelElement[] };
  return { ...document, name: document.name as string, elements: document.elements ?? [] };
};

export async function readPanel(id: string): Promise<Read> {
  const { data, response } = await askWhole(api.GET("/api/panels/{id}", { params: { path: { id } } }));
  return { document: withElements(data), tag: response.headers.get("ETag") ?? "" };
}

/** Save a panel that was read with a tag; return the new one. */
export async function savePanel(id: string, document: PanelDocument, tag: string): Promise<string> {
  const params = { path: { id } };
  const save = async (): Promise<Read> => {
    const asked = api.PUT("/api/panels/{id}", { params, body: document as never, headers: { "If-Match": tag } });
    return { document, tag: (await askWhole(asked)).response.headers.get("ETag") ?? "" };
  };
  const isSaved = (found: Read) => canonical(found.document) === canonical(document);
  return (await savedOnce(save, () => readPanel(id), isSaved)).tag;
}

/** Make a panel of workflows and agents; return its id. */
export async function makePanel(name: string, workflows: string[], agents: string[]): Promise<string> {
  const body = { name, workflows, agents };
  const { response } = await askWhole(api.POST("/api/panels", { body: body as never }));
  return response.headers.get("X-Panel-Id") ?? "";
}

export async function deletePanel(id: string, tag: string): Promise<void> {
  await ask(api.DELETE("/api/panels/{id}", { params: { path: { id } }, headers: { "If-Match": tag } }));
}

/** Return a document as people would be shown it. */
export const previewPanel = (document: PanelDocument): Promise<ShownPanel> =>
  ask(api.POST("/api/panels-preview", { body: document as never }));

/** An id for an element that no other has, made of a name. */
export function newId(name: string, taken: string[]): string {
  const plain =
    name
      .replace(/^.*\//, "")
      .replace(/[^A-Za-z0-9_-]+/g, "-")
      .slice(0, 60) || "element";
  return firstFree(plain, (id) => taken.includes(id));
}
