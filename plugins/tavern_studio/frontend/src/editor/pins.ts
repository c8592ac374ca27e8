import { api, ask } from "../api/client";
import { t } from "../i18n";
import { changeNode, GROUP_INPUT, GROUP_OUTPUT, indexOf, loopAround, nodeOf } from "./document";
import type { Slot, WorkflowDocument, WorkflowNode } from "./document";
import type { Outputs, Running } from "./running";
import type { Slots } from "./slots";

/** Characters that a pinned value may have: it is saved with each change of the document. */
const MOST = 1_000_000;

/** Whether runs can be given the outputs of a node: those of one in a loop are others each time. */
export function mayPin(document: WorkflowDocument, node: WorkflowNode): boolean {
  return loopAround(document, node.id) === undefined && node.type !== GROUP_INPUT && node.type !== GROUP_OUTPUT;
}

/** The pinned outputs of nodes that run, as far as the nodes have them still. */
export function pinsOf(document: WorkflowDocument, slotsOf: (id: string) => Slots): Outputs {
  const found: Outputs = {};
  for (const node of document.nodes) {
    if (node.pinnedOutputs === undefined || node.bypassed || !mayPin(document, node)) continue;
    const { outputs } = slotsOf(node.id);
    found[node.id] = Object.fromEntries(Object.entries(node.pinnedOutputs).filter(([key]) => key in outputs));
  }
  return found;
}

/** Pin outputs of a node, or let them go (`undefined`). */
export function withPins(document: WorkflowDocument, id: string, outputs: WorkflowNode["pinnedOutputs"]) {
  return changeNode(document, id, () => ({ pinnedOutputs: outputs }));
}

/** The slot whose control edits a pinned value: a text has lines and any content, whatever its slot is made for. */
export function pinSlot(slot: Slot, value: unknown): Slot {
  const type = slot.dataFlowType;
  const isPlain = ["INTEGER", "FLOAT", "BOOLEAN"].includes(type);
  if (isPlain && !Array.isArray(value)) return { dataFlowType: type };
  if (typeof value !== "string" && (type !== "STRING" || value != null)) return { dataFlowType: "OBJECT" };
  const code = ["Code", "Json", "Markdown"].filter((one) => slot.matchCategories?.includes(one));
  const languageHint = slot.config?.languageHint;
  return { dataFlowType: "STRING", matchCategories: code, config: { multiline: true, languageHint } };
}

/** What a node gave, whole: of large values a run shows only how long they are. Throws for what cannot be pinned. */
export async function wholeOutputs(running: Running, id: string): Promise<Record<string, unknown>> {
  const shown = Object.entries(running.nodes.get(id)?.output ?? {});
  return Object.fromEntries(
    await Promise.all(shown.map(async ([key, value]) => [key, await whole(running, id, key, value)])),
  );
}

async function whole(running: Running, id: string, key: string, value: unknown): Promise<unknown> {
  const { type, mediaType, length } = Object(value) as { type?: unknown; mediaType?: string; length?: number };
  const isLarge = type === "large" && typeof length === "number";
  const isText = mediaType?.startsWith("text/");
  if (type === "opaque" || (isLarge && (length > MOST || !(isText || mediaType === "application/json")))) {
    throw new Error(t("editor.cannotPin", { key }));
  }
  if (!isLarge) return value;
  const params = { path: { runId: running.runId.value ?? "", key }, query: { nodeId: id } };
  const text = await ask(api.GET("/api/runs/{runId}/outputs/{key}", { params: params as never, parseAs: "text" }));
  return isText ? text : JSON.parse(text);
}

/** What the last run gave the nodes that feed one: with it that node runs alone, with the inputs that it had. */
export function lastInputs(document: WorkflowDocument, running: Running, id: string): Outputs {
  const found: Outputs = {};
  for (const edge of indexOf(document).into.get(id) ?? []) {
    const source = nodeOf(document, edge.source);
    const output = running.nodes.get(edge.source)?.output;
    if (source !== undefined && mayPin(document, source) && !source.bypassed && output != null)
      found[source.id] = output;
  }
  return found;
}
