import { api, ask, type Schemas } from "../api/client";
import { asDocument, type WorkflowDocument } from "./document";

export type Revision = Schemas["WorkflowRevision"];

/** The revisions of a workflow, the newest first; of those after `before`. */
export function revisionsOf(id: string, before?: number): Promise<Revision[]> {
  const query = before === undefined ? {} : { before };
  return ask(api.GET("/api/workflows/{workflowId}/history", { params: { path: { workflowId: id }, query } }));
}

/** The document of a revision. */
export async function documentAt(id: string, number: number, read = asDocument): Promise<WorkflowDocument> {
  const path = { workflowId: id, number: String(number) };
  const document = await ask(api.GET("/api/workflows/{workflowId}/history/{number}", { params: { path } }));
  return read(document);
}

/** Give a revision a name, which keeps it for good; null takes it away. */
export function nameRevision(id: string, number: number, name: string | null): Promise<Revision> {
  const path = { workflowId: id, number: String(number) };
  return ask(api.PATCH("/api/workflows/{workflowId}/history/{number}", { params: { path }, body: { name } }));
}
