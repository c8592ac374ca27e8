import { page } from "../api/page";
import { attempt } from "./toasts";
import type { WorkflowDocument } from "../editor/document";

/** What was changed and not saved, and which version of the file it was made of. */
export interface Draft<T = WorkflowDocument> {
  document: T;
  etag: string;
  /** What the server was given meanwhile, without an answer. */
  sent?: T[];
}

const STORE = "drafts";

let opened: Promise<IDBDatabase> | undefined;

function database(): Promise<IDBDatabase> {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("tavern-studio", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error!);
  });
  return opened;
}

async function act<T>(mode: IDBTransactionMode, what: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const store = (await database()).transaction(STORE, mode).objectStore(STORE);
  return new Promise((resolve, reject) => {
    const request = what(store);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error!);
  });
}

const keyOf = (id: string) => `${page.base}/${page.project.id}/${id}`;
const due = new Map<string, ReturnType<typeof setTimeout>>();
const waiting = new Map<string, Draft<unknown>>();

/** Keep a draft in this browser, soon: typing does not write with each letter. */
export function saveLocalDraft<T>(id: string, draft: Draft<T>): void {
  waiting.set(id, draft);
  clearTimeout(due.get(id));
  due.set(
    id,
    setTimeout(() => void write(id), 300),
  );
}

async function write(id: string): Promise<void> {
  const draft = waiting.get(id);
  if (draft === undefined) return;
  await attempt(() => act("readwrite", (store) => store.put(draft, keyOf(id))));
  if (waiting.get(id) === draft) waiting.delete(id); // not before: who reads meanwhile finds it here
}

// What a page writes into the database while it goes may be lost; this storage is written at once.
const atTheEnd = (id: string) => `tavern.draft.${keyOf(id)}`;

addEventListener("pagehide", () => {
  waiting.forEach((draft, id) => {
    try {
      localStorage.setItem(atTheEnd(id), JSON.stringify(draft));
    } catch {
      localStorage.setItem(atTheEnd(id), JSON.stringify({ ...draft, sent: [] })); // there is room for little
    }
  });
});

/** Return the draft of a workflow, or of what else has an id of its own form; undefined where there is none, or this browser keeps nothing. */
export async function localDraft<T = WorkflowDocument>(id: string): Promise<Draft<T> | undefined> {
  const unwritten = waiting.get(id);
  if (unwritten !== undefined) return unwritten as Draft<T>;
  const last = localStorage.getItem(atTheEnd(id));
  if (last !== null) {
    localStorage.removeItem(atTheEnd(id));
    const draft = JSON.parse(last) as Draft<T>;
    saveLocalDraft(id, draft);
    return draft;
  }
  // Where this browser keeps nothing, saving has said so.
  return act("readonly", (store) => store.get(keyOf(id)) as IDBRequest<Draft<T> | undefined>).catch(() => undefined);
}

export async function removeLocalDraft(id: string): Promise<void> {
  waiting.delete(id);
  await act("readwrite", (store) => store.delete(keyOf(id))).catch(() => undefined); // one that is left is compared
}

/** Return the drafts of workflows that this browser keeps of the project, by their ids. */
export async function localDrafts(): Promise<Map<string, Draft>> {
  const start = keyOf("");
  const range = IDBKeyRange.bound(start, `${start}\uffff`);
  const stored = await act("readonly", (store) => store.getAllKeys(range)).catch(() => []); // as in `localDraft`
  const keys = [...stored.map(String), ...Object.keys(localStorage).map((key) => key.replace("tavern.draft.", ""))];
  const ids = new Set([
    ...keys.filter((key) => key.startsWith(start)).map((key) => key.slice(start.length)),
    ...waiting.keys(),
  ]);
  const found = new Map<string, Draft>();
  for (const id of ids) {
    const draft = await localDraft(id);
    if (Array.isArray(draft?.document.nodes)) found.set(id, draft);
  }
  return found;
}
