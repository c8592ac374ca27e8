import { api, ask, askWhole } from "../api/client";
import { asError } from "../api/resource";
import { t } from "../i18n";
import { inTurn } from "../kit/stale";
import { attempt, refuse } from "../kit/toasts";
import type { Effect } from "./session";

/**
 * The file of a group that was made on the canvas, which goes and comes with undo and redo. It stays where somebody has changed it
 * since, or where anything that was published uses it.
 */
export function groupFile(saved: { id: string }, revision: string): Effect {
  const path = { workflowId: saved.id };
  let tag = revision;
  let isGone = false;

  async function takeAway(): Promise<void> {
    const uses = await ask(api.GET("/api/workflows/{workflowId}/uses", { params: { path } }));
    if (uses.length > 0) return refuse(kept());
    try {
      await ask(api.DELETE("/api/workflows/{workflowId}", { params: { path }, headers: { "If-Match": tag } as never }));
      isGone = true;
    } catch (thrown) {
      const error = asError(thrown);
      if (error.status === 404) isGone = true;
      else if (error.status === 412) refuse(kept());
      else throw error;
    }
  }

  async function bringBack(): Promise<void> {
    if (!isGone) return;
    const { response } = await askWhole(api.POST("/api/workflows", { body: saved as never }));
    tag = response.headers.get("ETag") ?? tag;
    isGone = false;
  }

  const kept = () => t("editor.groups.kept", { id: saved.id });
  const inOrder = inTurn((what: () => Promise<void>) => attempt(what));
  return { undo: () => inOrder(takeAway), redo: () => inOrder(bringBack) };
}
