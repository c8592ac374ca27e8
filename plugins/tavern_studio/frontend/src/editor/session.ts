import { computed, markRaw, shallowReactive, shallowRef, type InjectionKey } from "vue";
import { api, askWhole, type ApiError } from "../api/client";
import { asError } from "../api/resource";
import { useDefinitions } from "./definitions";
import { keepDraft, keptDraft, forgetDraft } from "./drafts";
import { indexOf, nodeOf, type WorkflowDocument } from "./document";
import { Running } from "./running";
import { slotsOf, type Slots } from "./slots";

interface Step {
  label: string;
  document: WorkflowDocument;
  /** Steps of the same kind in a row are one, such as the letters that are typed into a field. */
  kind?: string;
  at: number;
}

const TOGETHER = 1500;
/** Milliseconds in which steps of one kind become one. */
const STEPS = 200;

/** One open workflow: its document with what was done to it, what is selected, and its run. */
export class Session {
  readonly document = shallowRef<WorkflowDocument>({ nodes: [], edges: [] });
  readonly selected = shallowRef<ReadonlySet<string>>(new Set());
  readonly selectedEdges = shallowRef<ReadonlySet<string>>(new Set());
  readonly state = shallowRef<"loading" | "ready" | "failed">("loading");
  readonly error = shallowRef<ApiError>();
  /** A version that somebody else has saved since this one was read. */
  readonly conflict = shallowRef(false);
  readonly saving = shallowRef(false);
  /** A node that is to be selected and brought into view. */
  readonly focus = shallowRef<string>();
  readonly running: Running;
  private readonly saved = shallowRef<WorkflowDocument>();
  private etag = "";
  private readonly past = shallowRef<Step[]>([]);
  private readonly future = shallowRef<Step[]>([]);
  private readonly slots = shallowReactive(new Map<string, { of: unknown[]; slots: Slots }>());
  private readonly definitions = useDefinitions();

  constructor(readonly id: string) {
    this.running = markRaw(new Running(id));
    void this.load();
  }

  readonly isChanged = computed(() => this.saved.value !== undefined && this.document.value !== this.saved.value);
  readonly undoLabel = computed(() => this.past.value.at(-1)?.label);
  readonly redoLabel = computed(() => this.future.value.at(-1)?.label);
  readonly index = computed(() => indexOf(this.document.value));

  /** Read the workflow; a draft of this browser that was made of the same version is opened in its place. */
  async load(): Promise<void> {
    this.state.value = "loading";
    try {
      const request = api.GET("/api/workflows/{workflowId}", { params: { path: { workflowId: this.id } } });
      const { data, response } = await askWhole(request);
      const document = withPositions(data as unknown as WorkflowDocument);
      this.etag = response.headers.get("ETag") ?? "";
      this.saved.value = document;
      this.document.value = document;
      this.past.value = this.future.value = [];
      this.conflict.value = false;
      const draft = await keptDraft(this.id);
      if (draft !== undefined) {
        this.document.value = draft.document;
        this.conflict.value = draft.etag !== this.etag;
      }
      this.state.value = "ready";
    } catch (thrown) {
      this.error.value = asError(thrown);
      this.state.value = "failed";
    }
  }

  /** Change the document as one step that can be undone. */
  change(label: string, how: (document: WorkflowDocument) => WorkflowDocument, kind?: string): void {
    const before = this.document.value;
    const next = how(before);
    if (next === before) return;
    const last = this.past.value.at(-1);
    const now = Date.now();
    if (kind !== undefined && last?.kind === kind && now - last.at < TOGETHER) {
      last.at = now;
    } else {
      this.past.value = [...this.past.value.slice(-STEPS), { label, document: before, kind, at: now }];
    }
    this.future.value = [];
    this.show(next);
  }

  undo(): void {
    this.step(this.past, this.future);
  }

  redo(): void {
    this.step(this.future, this.past);
  }

  private step(from: typeof this.past, to: typeof this.past): void {
    const step = from.value.at(-1);
    if (step === undefined) return;
    from.value = from.value.slice(0, -1);
    to.value = [...to.value, { label: step.label, document: this.document.value, at: 0 }];
    this.show(step.document);
  }

  private show(document: WorkflowDocument): void {
    this.document.value = document;
    this.selected.value = new Set([...this.selected.value].filter((id) => nodeOf(document, id)));
    if (this.isChanged.value) keepDraft(this.id, { document, etag: this.etag });
    else void forgetDraft(this.id);
  }

  /** Save the file. Where somebody else has saved meanwhile, nothing is written and `conflict` is set. */
  async save(options: { overwrite?: boolean } = {}): Promise<void> {
    const document = this.document.value;
    this.saving.value = true;
    try {
      if (options.overwrite) this.etag = await this.currentEtag();
      const request = api.PUT("/api/workflows/{workflowId}", {
        params: { path: { workflowId: this.id } },
        body: { ...document, updatedAt: new Date().toISOString() } as never,
        headers: { "If-Match": this.etag },
      });
      const { response } = await askWhole(request);
      this.etag = response.headers.get("ETag") ?? "";
      this.saved.value = document;
      this.conflict.value = false;
      if (this.document.value === document) await forgetDraft(this.id);
    } catch (thrown) {
      const error = asError(thrown);
      if (error.status !== 412) throw error;
      this.conflict.value = true;
    } finally {
      this.saving.value = false;
    }
  }

  private async currentEtag(): Promise<string> {
    const request = api.GET("/api/workflows/{workflowId}", { params: { path: { workflowId: this.id } } });
    return (await askWhole(request)).response.headers.get("ETag") ?? "";
  }

  /** Give up what was changed here, and read the file. */
  async discard(): Promise<void> {
    await forgetDraft(this.id);
    await this.load();
  }

  /** The slots of a node, made anew only where something that they depend on is another. */
  slotsOf(id: string): Slots {
    const document = this.document.value;
    const node = nodeOf(document, id);
    if (node === undefined) return { inputs: {}, outputs: {}, innerInputs: {}, innerOutputs: {} };
    const edges = [...(this.index.value.into.get(id) ?? []), ...(this.index.value.outOf.get(id) ?? [])];
    const byType = this.definitions.byType;
    const group = this.definitions.group(String(node.configValues?.referencedWorkflowId ?? ""));
    const of = [node.type, node.configValues, document.interfaceInputs, document.interfaceOutputs, byType, group, ...edges];
    const known = this.slots.get(id);
    if (known && known.of.length === of.length && known.of.every((one, index) => one === of[index])) return known.slots;
    const slots = slotsOf(node, document, { byType, group: (name) => this.definitions.group(name) });
    queueMicrotask(() => this.slots.set(id, { of, slots }));
    return slots;
  }
}

/** A file may leave out where its nodes are; the canvas puts those in a row. */
function withPositions(document: WorkflowDocument): WorkflowDocument {
  if (document.nodes.every((node) => node.position as unknown)) return document;
  const place = (index: number) => ({ x: (index % 6) * 260, y: Math.floor(index / 6) * 200 });
  const nodes = document.nodes.map((node, index) => ({ ...node, position: node.position ?? place(index) }));
  return { ...document, nodes };
}

export const SESSION: InjectionKey<Session> = Symbol("session");
