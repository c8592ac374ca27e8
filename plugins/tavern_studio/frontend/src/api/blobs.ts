import type { Schemas } from "./client";
import { page } from "./page";

/** Keep a file of the person as a Blob, sent as a stream: it is never held here as a whole. Raises what the server refuses. */
export async function putBlob(file: Blob): Promise<Schemas["Blob"]> {
  const query = `projectId=${encodeURIComponent(page.project.id)}`;
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  const sent = await fetch(`${page.base}/api/blobs?${query}`, { method: "POST", headers, body: file });
  if (!sent.ok) throw new Error(((await sent.json()) as { detail?: string }).detail ?? String(sent.status));
  return (await sent.json()) as Schemas["Blob"];
}
