import { api, ask } from "../api/client";
import { t } from "../i18n";
import { chooseFiles, download } from "../kit/files";
import { attempt } from "../kit/toasts";

/** Let the person choose workflows' files, and keep them; returns the ids. */
export async function importWorkflows(): Promise<string[]> {
  const ids: string[] = [];
  for (const file of await chooseFiles(".json,application/json")) {
    const id = await attempt(() => importWorkflow(file));
    if (id !== undefined) ids.push(id);
  }
  return ids;
}

/** Give a workflow as it was published to the person as a file. */
export async function exportWorkflow(workflowId: string): Promise<void> {
  const params = { path: { workflowId } };
  const document = await attempt(() => ask(api.GET("/api/workflows/{workflowId}", { params })));
  if (document !== undefined) download(`${workflowId.replaceAll("/", "-")}.json`, document);
}

/** Whether these are files that a view has no use for, and that may be workflows. */
export function areWorkflows(event: DragEvent): boolean {
  const files = [...(event.dataTransfer?.files ?? [])];
  return !event.defaultPrevented && files.length > 0 && files.every((file) => /\.json$/i.test(file.name));
}

/** Keep a workflow's file under an id of its own, made of its name; return the id. Raises what the server refuses. */
export async function importWorkflow(file: File): Promise<string> {
  const { id: _given, ...document } = objectIn(await file.text(), file.name);
  const name = String(document.name || file.name.replace(/(\.workflow)?\.json$/i, ""));
  const saved = await ask(api.POST("/api/workflows", { body: { ...document, name } as never }));
  return String((saved as { id?: unknown }).id);
}

function objectIn(text: string, name: string): Record<string, unknown> {
  try {
    const found = JSON.parse(text) as unknown;
    if (found !== null && typeof found === "object" && "nodes" in found) return found;
  } catch {
    // said below
  }
  throw new Error(t("app.noWorkflow", { name }));
}
