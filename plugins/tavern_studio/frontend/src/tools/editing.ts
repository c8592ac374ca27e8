import { computed, ref, watch } from "vue";
import type { ApiError, Schemas } from "../api/client";
import { asError } from "../api/resource";
import { removeLocalDraft, saveLocalDraft, localDraft } from "../kit/drafts";
import { t } from "../i18n";
import { inTurn } from "../kit/stale";
import { say } from "../kit/toasts";
import {
  at,
  documentOf,
  having,
  idKey,
  implementationKey,
  isObject,
  languageOf,
  nameOf,
  newSource,
  textOf,
  withDraft,
  type NewKind,
  type Problem,
} from "./toolfile";
import { checkTool, deleteTool, draftOf, readTool, saveTool, tryTool } from "./toolfiles";

interface Source {
  text: string;
  code: string;
}

const SUFFIXES: Record<string, string> = { python: "py", nodejs: "mjs", bun: "ts" };

/** A tool file that is edited, or a new one of a kind: its text is what counts, and forms change it. */
export function useToolFile(target: { name?: string; kind?: NewKind }) {
  let key = `tool:${target.name ?? `+${target.kind}`}`;
  const text = ref("");
  const code = ref("");
  const stored = ref<Source>();
  const script = ref<string>();
  const tag = ref<string>();
  const error = ref<ApiError>();
  const refused = ref("");
  const isConflict = ref(false);
  const isRestored = ref(false);
  const problems = ref<Problem[]>([]);
  const checked = ref<Schemas["ToolFileCheck"]>();

  const document = computed(() => documentOf(text.value));
  const implementation = computed(() => {
    const found = document.value && document.value[implementationKey(document.value)];
    return isObject(found) ? found : {};
  });
  const id = computed(() => String((document.value && document.value[idKey(document.value)]) ?? ""));
  const name = computed(() => target.name ?? nameOf(id.value));
  const isScript = computed(() => ["script", "external-script"].includes(String(implementation.value.type)));
  const hasCode = computed(() => isScript.value && implementation.value.command === undefined);
  const isService = computed(() => String(implementation.value.type).startsWith("service"));
  const isDirty = computed(
    () => stored.value !== undefined && (text.value !== stored.value.text || code.value !== stored.value.code),
  );
  const source = computed(() => ({ text: text.value, code: hasCode.value && code.value !== "" ? code.value : null }));

  function take(now: Source): void {
    [text.value, code.value] = [now.text, now.code];
    problems.value = [];
    checked.value = undefined;
  }

  async function load(): Promise<void> {
    error.value = undefined;
    refused.value = "";
    isConflict.value = false;
    try {
      const opened = target.name ? await readTool(target.name) : undefined;
      const kept = await localDraft<Source>(key); // before anything can be typed, which would become the draft
      const found = opened?.file.source;
      stored.value = found ? { text: found.text, code: found.code ?? "" } : newSource(target.kind ?? "script");
      script.value = opened?.file.script ?? undefined;
      tag.value = opened?.tag;
      take(stored.value);
      problems.value = opened?.file.problems ?? [];
      if (kept === undefined || (kept.document.text === text.value && kept.document.code === code.value)) return;
      take(kept.document);
      // What others saved meanwhile is a conflict, and is not overwritten.
      tag.value = target.name ? kept.etag : undefined;
      isRestored.value = true;
    } catch (thrown) {
      error.value = asError(thrown);
    }
  }

  /** Keep in this browser what is not saved. */
  function keep(): void {
    if (isDirty.value) saveLocalDraft(key, { document: { text: text.value, code: code.value }, etag: tag.value ?? "" });
    else void removeLocalDraft(key);
  }

  watch([text, code], keep);

  /** Forget what was not saved, and read the file. */
  async function discard(): Promise<void> {
    await removeLocalDraft(key);
    isRestored.value = false;
    await load();
  }

  function change(path: string[], value: unknown): void {
    if (document.value) text.value = textOf(having(document.value, path, value));
  }

  function changeImplementation(field: string, value: unknown): void {
    if (document.value) change([implementationKey(document.value), field], value);
  }

  /** Give the tool an id; the script of a new one is called after it, unless it was named. */
  function changeId(value: string): void {
    if (!document.value) return;
    const suffix = SUFFIXES[languageOf(document.value)] ?? "py";
    const [before, now] = [nameOf(id.value), nameOf(value)].map((one) => (one ? `${one}.${suffix}` : ""));
    const path = at(document.value, implementationKey(document.value), "scriptPath");
    change([idKey(document.value)], value);
    if (target.name === undefined && path === before) changeImplementation("scriptPath", now);
  }

  /** Do something with the source; what is wrong with it is shown where it is. */
  async function act<T>(what: () => Promise<T>): Promise<T | undefined> {
    refused.value = "";
    isConflict.value = false;
    try {
      return await what();
    } catch (thrown) {
      const found = asError(thrown);
      isConflict.value = found.status === 412;
      if (Array.isArray(found.details.problems)) problems.value = found.details.problems as Problem[];
      refused.value = isConflict.value ? t("tools.changed") : found.message || t(`errors.${found.code}`);
      return undefined;
    }
  }

  async function check(): Promise<void> {
    checked.value = await act(() => checkTool(name.value || "new", source.value));
    problems.value = checked.value?.problems ?? problems.value;
  }

  /** Save it; `overwrite` whatever is there. Returns its name. */
  const save = inTurn(async (overwrite: boolean): Promise<string | undefined> => {
    const sent = source.value;
    const opened = await act(() => saveTool(name.value, sent, overwrite ? "*" : tag.value));
    if (opened === undefined) return undefined;
    await removeLocalDraft(key);
    key = `tool:${opened.file.name}`;
    const now = opened.file.source;
    stored.value = { text: now?.text ?? sent.text, code: now?.code ?? "" };
    tag.value = opened.tag;
    script.value = opened.file.script ?? undefined;
    isRestored.value = false;
    if (source.value.text === sent.text && source.value.code === sent.code) take({ ...stored.value });
    else keep(); // what was typed meanwhile
    problems.value = opened.file.problems ?? [];
    say(t("kit.saved"));
    return opened.file.name;
  });

  async function remove(withScript: boolean): Promise<boolean> {
    const done = await act(async () => {
      await deleteTool(name.value, tag.value ?? "*", withScript);
      return true;
    });
    if (done) await removeLocalDraft(key);
    return done ?? false;
  }

  /** Take what follows from the code; returns what could not be told. */
  async function draft(): Promise<string[]> {
    const now = document.value;
    if (now === undefined) return [];
    const entry = implementation.value.entryPoint;
    const found = await act(() => draftOf(code.value, languageOf(now), typeof entry === "string" ? entry : undefined));
    if (found !== undefined && document.value) text.value = textOf(withDraft(document.value, found));
    return found?.notes ?? [];
  }

  const tryOut = (values: Record<string, unknown>) => act(() => tryTool(name.value || "new", source.value, values));

  void load();
  return {
    ...{ text, code, document, implementation, id, name, script, hasCode, isScript, isService, isDirty, tag },
    ...{ error, refused, isConflict, isRestored, problems, checked, stored },
    ...{ load, discard, change, changeImplementation, changeId, check, save, remove, draft, tryOut },
  };
}
