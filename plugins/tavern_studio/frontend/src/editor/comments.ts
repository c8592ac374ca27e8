import { freeId, type WorkflowComment, type WorkflowDocument } from "./document";

/** What a comment is called on the canvas, where it lies among nodes: no node's id begins so. */
const MARK = "comment:\u0000";

export const onCanvas = (id: string) => MARK + id;
export const commentAt = (canvasId: string) => (canvasId.startsWith(MARK) ? canvasId.slice(MARK.length) : undefined);

/** Put an empty comment on the canvas. */
export function addComment(document: WorkflowDocument, position: { x: number; y: number }): WorkflowDocument {
  const comments = document.comments ?? [];
  const id = freeId({ has: (one) => comments.some((comment) => comment.id === one) }, "note");
  return { ...document, comments: [...comments, { id, text: "", position, width: 240, height: 120 }] };
}

/** Change one comment; the same document where nothing is other. */
export function changeComment(
  document: WorkflowDocument,
  id: string,
  change: Partial<WorkflowComment>,
): WorkflowDocument {
  const found = document.comments?.find((one) => one.id === id);
  const keys = Object.keys(change) as (keyof WorkflowComment)[];
  if (found === undefined || keys.every((key) => found[key] === change[key])) return document;
  return { ...document, comments: document.comments?.map((one) => (one === found ? { ...one, ...change } : one)) };
}

export function removeComment(document: WorkflowDocument, id: string): WorkflowDocument {
  return { ...document, comments: document.comments?.filter((one) => one.id !== id) };
}
