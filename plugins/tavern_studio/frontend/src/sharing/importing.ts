import { shallowRef } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { beginWith, importCard, importChat, importPreset } from "../characters/characters";
import { t } from "../i18n";
import { chooseFiles, download, save } from "../kit/files";
import { attempt, say } from "../kit/toasts";
import { isPng, keywordsIn, withText } from "./png";
import { handedOver, handOver, isProject } from "./projects";

/** The keyword under which a picture has the workflow that it shows. */
export const KEYWORD = "tavern-workflow";
/** Those under which pictures of characters have their cards. */
const CARDS = ["chara", "ccv3"];

const TAKEN =
  ".json,.jsonl,.yaml,.yml,.zip,.png,.webp,.jpg,.jpeg,.charx,application/json,image/png,image/webp,image/jpeg";
/** Files of other kinds than JSON and PNG, which only characters come in. */
const OF_CHARACTERS = /\.(webp|jpe?g|charx)$/i;

export type ImportResult = Schemas["ImportResult"];

/** What came of the last file, where there is more to say of it than where it is shown. */
export const lastImport = shallowRef<ImportResult>();

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
  const isOurs = (file: File) => /\.(jsonl?|png|ya?ml|zip)$/i.test(file.name) || OF_CHARACTERS.test(file.name);
  return !event.defaultPrevented && files.length > 0 && files.every(isOurs);
}

/** What of a character a JSON file holds, which is begun with at once; undefined for what the server recognises. */
export function kindOf(value: unknown): "character" | "preset" | undefined {
  if (value === null || typeof value !== "object" || Array.isArray(value) || "nodes" in value) return undefined;
  if ("prompts" in value && "prompt_order" in value) return "preset";
  if ("spec" in value) return /^chara_card/.test(String(value.spec)) ? "character" : undefined;
  const inner = "data" in value && value.data !== null && typeof value.data === "object" ? value.data : value;
  return "first_mes" in inner ? "character" : undefined;
}

/** Keep what a file holds, whatever it is; return where the page shows it. Raises what the server refuses. */
export async function importFile(file: File): Promise<string | undefined> {
  if (/\.jsonl$/i.test(file.name)) return importChat(file);
  if (OF_CHARACTERS.test(file.name)) return keepCharacter(file);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const keywords = isPng(bytes) ? keywordsIn(bytes) : [];
  if (!keywords.includes(KEYWORD) && CARDS.some((one) => keywords.includes(one))) return keepCharacter(file);
  const value = /\.json$/i.test(file.name) ? valueIn(bytes) : undefined;
  const kind = kindOf(value);
  if (kind !== undefined) return kind === "preset" ? importPreset(file) : keepCharacter(file);
  return recognised(file, value);
}

function valueIn(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

/** Let the server say what a file is, and keep it; a project is shown before. */
async function recognised(file: File, value: unknown): Promise<string | undefined> {
  if (isProject(value) || /\.zip$/i.test(file.name)) {
    const plan = await handOver(file, { dryRun: true });
    if (plan.kind.startsWith("project")) {
      handedOver.value = { file, plan };
      return undefined;
    }
  }
  const result = await handOver(file);
  if (result.withoutEffect?.length || result.nextSteps?.length) lastImport.value = result;
  else say(t("sharing.imported", { title: result.title, name: nameOf(result) }));
  return result.things?.find(({ page }) => page)?.page;
}

const nameOf = ({ things }: ImportResult): string => things?.[0]?.name || things?.[0]?.id || "";

/** A card becomes an agent, which greets the person. */
async function keepCharacter(file: File): Promise<string> {
  const made = await importCard(file);
  const fields = (made.unsupported ?? []).join(", ");
  say(t(fields ? "characters.unsupported" : "characters.imported", { name: made.name, fields }));
  return beginWith(made.id);
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
