import { api, ask } from "../api/client";
import { beginWith, importCard, importChat, importPreset } from "../characters/characters";
import { saveProfile, type Profile } from "../agents/profiles";
import { t } from "../i18n";
import { chooseFiles, download, save } from "../kit/files";
import { attempt, say } from "../kit/toasts";
import { baseIdOf, importBase } from "../knowledge/entries";
import { isPng, keywordsIn, textIn, withText } from "./png";
import { firstFree } from "../kit/words";

/** The keyword under which a picture has the workflow that it shows. */
export const KEYWORD = "tavern-workflow";
/** Those under which pictures of characters have their cards. */
const CARDS = ["chara", "ccv3"];

const TAKEN = ".json,.jsonl,.png,.webp,.jpg,.jpeg,.charx,application/json,image/png,image/webp,image/jpeg";
/** Files of other kinds than JSON and PNG, which only characters come in. */
const OF_CHARACTERS = /\.(webp|jpe?g|charx)$/i;

/** Let the person choose files, and keep what they hold; returns where the page shows it. */
export async function importFiles(): Promise<string[]> {
  const shown: string[] = [];
  for (const file of await chooseFiles(TAKEN)) {
    const path = await attempt(() => importFile(file));
    if (path !== undefined) shown.push(path);
  }
  return shown;
}

/** Whether these are files that a view has no use for, and that may be imported. */
export function mayImport(event: DragEvent): boolean {
  const files = [...(event.dataTransfer?.files ?? [])];
  const isOurs = (file: File) => /\.(jsonl?|png)$/i.test(file.name) || OF_CHARACTERS.test(file.name);
  return !event.defaultPrevented && files.length > 0 && files.every(isOurs);
}

export type Kind = "workflow" | "conversation" | "agent" | "character" | "preset" | "knowledge";

/** What a JSON file holds, by the marks of its kind; undefined for anything else. */
export function kindOf(value: unknown): Kind | undefined {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
  if ("nodes" in value) return "workflow";
  if ("format" in value && value.format === "tavern-chat-history") return "conversation";
  if ("core_deliberation_workflow_id" in value) return "agent";
  if ("prompts" in value && "prompt_order" in value) return "preset";
  if ("spec" in value && /^chara_card/.test(String(value.spec))) return "character";
  if ("entries" in value || ("spec" in value && value.spec === "lorebook_v3") || isRisuBook(value)) return "knowledge";
  const inner = "data" in value && value.data !== null && typeof value.data === "object" ? value.data : value;
  return "first_mes" in inner ? "character" : undefined;
}

const isRisuBook = (value: object) => "type" in value && value.type === "risu" && "data" in value;

/** Keep what a file holds, whatever it is; return where the page shows it. Raises what the server refuses. */
export async function importFile(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (isPng(bytes)) {
    const text = textIn(bytes, KEYWORD);
    if (text !== undefined) return keepWorkflow(objectIn(text), file.name);
    if (CARDS.some((one) => keywordsIn(bytes).includes(one))) return keepCharacter(file);
    throw new Error(t("sharing.plainPicture", { name: file.name }));
  }
  if (OF_CHARACTERS.test(file.name)) return keepCharacter(file);
  if (/\.jsonl$/i.test(file.name)) return importChat(file);
  const value = objectIn(new TextDecoder().decode(bytes));
  switch (kindOf(value)) {
    case "workflow":
      return keepWorkflow(value, file.name);
    case "conversation":
      return keepConversation(value);
    case "agent":
      return keepAgent(value as unknown as Profile);
    case "character":
      return keepCharacter(file);
    case "preset":
      return importPreset(file);
    case "knowledge":
      return keepKnowledge(file);
    case undefined:
      throw new Error(t("sharing.unknown", { name: file.name }));
  }
}

function objectIn(text: string): Record<string, unknown> {
  try {
    const found = JSON.parse(text) as unknown;
    return found !== null && typeof found === "object" ? (found as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** A workflow gets an id of its own, made of its name. */
async function keepWorkflow(value: Record<string, unknown>, file: string): Promise<string> {
  const { id: _given, ...document } = value;
  const name = String(document.name || file.replace(/(\.workflow)?\.(json|png)$/i, ""));
  const saved = await ask(api.POST("/api/workflows", { body: { ...document, name } as never }));
  return `/workflows/${String((saved as { id?: unknown }).id)}`;
}

/** An id like the wanted one that nothing has yet: nothing is replaced. */
function freeId(wanted: string, taken: readonly { id: string }[]): string {
  const ids = new Set(taken.map((one) => one.id));
  return firstFree(wanted, (id) => ids.has(id));
}

async function keepConversation(value: Record<string, unknown>): Promise<string> {
  const known = await ask(api.GET("/api/histories", { params: { query: { limit: "1000" } as never } }));
  const id = freeId(String(value.id), known);
  await ask(api.POST("/api/histories", { params: { query: { id } as never }, body: value as never }));
  return `/chat/${id}`;
}

async function keepAgent(profile: Profile): Promise<string> {
  const id = freeId(profile.id, await ask(api.GET("/api/agents")));
  await saveProfile({ ...profile, id });
  return `/agents/${id}`;
}

/** A card becomes an agent, which greets the person. */
async function keepCharacter(file: File): Promise<string> {
  const made = await importCard(file);
  const fields = (made.unsupported ?? []).join(", ");
  say(t(fields ? "characters.unsupported" : "characters.imported", { name: made.name, fields }));
  return beginWith(made.id);
}

async function keepKnowledge(file: File): Promise<string> {
  const wanted = baseIdOf(file.name.replace(/\.[^.]*$/, "")) || "book";
  const id = freeId(wanted, await ask(api.GET("/api/knowledge")));
  await importBase(id, file);
  return `/knowledge/${id}`;
}

async function published(workflowId: string): Promise<Record<string, unknown>> {
  return await ask(api.GET("/api/workflows/{workflowId}", { params: { path: { workflowId } } }));
}

/** Give a workflow as it was published to the person as a file. */
export async function exportWorkflow(workflowId: string): Promise<void> {
  const document = await attempt(() => published(workflowId));
  if (document !== undefined) download(`${workflowId.replaceAll("/", "-")}.json`, document);
}

/** Give a picture of a workflow to the person, which holds the workflow itself: those who get it can import it. */
export async function exportPicture(workflowId: string): Promise<void> {
  await attempt(async () => {
    const { useDefinitions } = await import("../editor/definitions");
    const { pngOf, sketchOf } = await import("./sketch");
    const document = await published(workflowId);
    const definitions = useDefinitions();
    if (definitions.byType.size === 0) await definitions.resource.reload();
    const sketch = sketchOf(document as never, definitions.byType);
    if (sketch === undefined) throw new Error(t("sharing.nothingDrawn"));
    const picture = withText(await pngOf(sketch), KEYWORD, JSON.stringify(document));
    save(`${workflowId.replaceAll("/", "-")}.png`, new Blob([picture], { type: "image/png" }));
  });
}

/** Copy the address under which the page shows something to those who may see it. */
export function copyLink(path: string): Promise<unknown> {
  const link = `${location.origin}${location.pathname}#${path}`;
  return attempt(() => navigator.clipboard.writeText(link), t("sharing.linkCopied"));
}
