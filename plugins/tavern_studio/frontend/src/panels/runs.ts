import { computed, ref, shallowReactive, shallowRef } from "vue";
import { putBlob } from "../api/blobs";
import { api, ApiError, ask, type Schemas } from "../api/client";
import { page } from "../api/page";
import { asError } from "../api/resource";
import { whoIsHere } from "../api/rights";
import { joined } from "../kit/pieces";

export type PanelRun = Schemas["PanelRun"];

/** How many earlier runs of an element a browser remembers. */
const MOST = 10;
/** How many runs are followed by a stream at a time: a browser has six connections to a server, and others need some. */
const MOST_STREAMS = 3;
const LOOK_EVERY = 1000;
let streaming = 0;

const isActive = (run: PanelRun | undefined) => run?.status === "queued" || run?.status === "running";

/** The run of an element that is shown, while it happens; started here, or earlier in this browser. */
export class ElementRun {
  readonly run = shallowRef<PanelRun>();
  /** What has streamed so far, by output. */
  readonly streams = shallowReactive<Record<string, string>>({});
  readonly progress = shallowRef<{ value: number; max?: number; message?: string }>();
  /** What an agent does at this moment. */
  readonly note = ref("");
  /** Why it could not be started, and what is wrong with each input. */
  readonly refused = shallowRef<ApiError>();
  readonly isStarting = ref(false);
  readonly isActive = computed(() => this.isStarting.value || isActive(this.run.value));
  private source?: EventSource;
  private due?: ReturnType<typeof setTimeout>;

  constructor(
    private readonly panel: string,
    private readonly element: string,
    private readonly ended: (run: PanelRun) => void = () => undefined,
  ) {}

  /** Begin something that answers with a run. */
  async begin(begun: () => Promise<PanelRun>): Promise<boolean> {
    this.refused.value = undefined;
    this.isStarting.value = true;
    try {
      const run = await begun();
      this.show(run);
      return true;
    } catch (thrown) {
      this.refused.value = asError(thrown);
      return false;
    } finally {
      this.isStarting.value = false;
    }
  }

  start(inputs: Record<string, unknown>): Promise<boolean> {
    const params = { path: { id: this.panel, element: this.element } };
    return this.begin(() =>
      ask(api.POST("/api/panels/{id}/elements/{element}/runs", { params, body: { inputs } as never })),
    );
  }

  /** Show a run, and follow it until it has ended. */
  show(run: PanelRun): void {
    this.close();
    this.run.value = run;
    this.progress.value = undefined;
    this.note.value = "";
    Object.keys(this.streams).forEach((key) => delete this.streams[key]);
    if (isActive(run)) this.follow(run.id);
  }

  private follow(id: string): void {
    if (streaming >= MOST_STREAMS) return this.look(id);
    streaming += 1;
    const path = `/api/panels/${encodeURIComponent(this.panel)}/runs/${encodeURIComponent(id)}/events`;
    const query = new URLSearchParams({ projectId: page.project.id });
    const source = (this.source = new EventSource(`${page.base}${path}?${query}`));
    const on = (name: string, take: (data: never) => void) =>
      source.addEventListener(name, (event) => take(JSON.parse(String(event.data)) as never));
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return; // it is tried again by the browser
      this.close();
      this.look(id);
    };
    on("run", (run: PanelRun) => this.take(run));
    on("piece", ({ key, content, restart }: { key: string; content: unknown; restart?: boolean }) => {
      this.streams[key] = restart ? "" : joined(this.streams[key], this.textOf(content));
    });
    on("progress", (told: { value: number }) => (this.progress.value = told));
    on("note", ({ kind, text }: { kind: string; text: string }) => {
      this.note.value = text;
      delete this.streams.reply; // what was said on the way to the reply is no reply
      if (kind === "thought") this.note.value = "";
    });
  }

  private take(run: PanelRun): void {
    this.run.value = run;
    if (isActive(run)) return;
    this.close();
    this.ended(run);
  }

  /** Ask how a run stands from time to time, where there is no stream for it. */
  private look(id: string): void {
    this.due = setTimeout(() => void this.askFor(id), LOOK_EVERY);
  }

  private async askFor(id: string): Promise<void> {
    const params = { path: { id: this.panel, run: id } };
    const found = await ask(api.GET("/api/panels/{id}/runs/{run}", { params })).catch(asError);
    if (this.run.value?.id !== id) return;
    if (!(found instanceof ApiError)) this.take(found);
    else if (found.status !== 0) this.refused.value = found; // a server that does not answer may do so later
    if (isActive(this.run.value) && this.refused.value === undefined) this.look(id);
  }

  /** A piece of an agent's reply is a text as it is. */
  private textOf(content: unknown): unknown {
    return typeof content === "string" ? { type: "text_chunk", content } : content;
  }

  /** Answer what the run asks; without an answer decline. */
  async answer(question: string, answer?: unknown): Promise<void> {
    const run = this.run.value;
    if (run === undefined) return;
    const isFile = answer instanceof File;
    const said = isFile
      ? { file: await putBlob(answer), name: answer.name }
      : { answer, decline: answer === undefined };
    const params = { path: { id: this.panel, run: run.id } };
    const body = { question, ...said } as never;
    const answered = await ask(api.POST("/api/panels/{id}/runs/{run}/answers", { params, body }));
    if (this.run.value?.id === run.id && this.run.value.question?.id === question) this.take(answered);
  }

  async stop(): Promise<void> {
    const run = this.run.value;
    if (run === undefined) return;
    const params = { path: { id: this.panel, run: run.id } };
    const stopped = await ask(api.POST("/api/panels/{id}/runs/{run}/stop", { params }));
    if (this.run.value?.id === run.id && this.source === undefined) this.run.value = stopped;
  }

  close(): void {
    clearTimeout(this.due);
    if (this.source !== undefined) streaming -= 1;
    this.source?.close();
    this.source = undefined;
  }
}

/** What is wrong with each input, as the server said. */
export function problemsOf(error: ApiError | undefined): Record<string, string> {
  const problems = (error?.details.problems ?? []) as { slot?: string; message?: string }[];
  if (!Array.isArray(problems)) return {};
  return Object.fromEntries(problems.flatMap(({ slot, message }) => (slot && message ? [[slot, message]] : [])));
}

/** The ids of the runs that somebody began in an element, in this browser, the newest first. */
export class History {
  readonly runs = shallowRef<PanelRun[]>([]);
  private key = "";

  constructor(
    private readonly panel: string,
    private readonly element: string,
  ) {}

  private async name(): Promise<string> {
    const who = (await whoIsHere())?.user ?? "operator";
    return (this.key ||= `tavern.panel.${page.project.id}.${who}.${this.panel}.${this.element}`);
  }

  /** Read the runs that the server still has. */
  async load(): Promise<void> {
    const kept = JSON.parse(localStorage.getItem(await this.name()) ?? "[]") as string[];
    const found = await Promise.all(
      kept.map((run) =>
        ask(api.GET("/api/panels/{id}/runs/{run}", { params: { path: { id: this.panel, run } } })).catch(
          () => undefined, // it was forgotten, or belongs to an element that is gone
        ),
      ),
    );
    this.runs.value = found.filter((one) => one !== undefined);
  }

  async add(run: PanelRun): Promise<void> {
    this.runs.value = [run, ...this.runs.value.filter((one) => one.id !== run.id)].slice(0, MOST);
    const name = await this.name();
    localStorage.setItem(name, JSON.stringify(this.runs.value.map((one) => one.id)));
  }

  async clear(): Promise<void> {
    this.runs.value = [];
    localStorage.removeItem(await this.name());
  }
}
