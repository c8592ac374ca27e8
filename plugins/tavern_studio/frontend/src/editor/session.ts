import { computed, markRaw, shallowReactive, shallowRef, type InjectionKey } from "vue";
import { api, ask, type ApiError } from "../api/client";
import { asError } from "../api/resource";
import { t } from "../i18n";
import { attempt } from "../kit/toasts";
import { inTurn } from "../kit/stale";
import { compare, staleSince, type Comparison } from "./comparison";
import { useDefinitions } from "./definitions";
import { asDocument, indexOf, nodeOf, type WorkflowDocument, type WorkflowNode } from "./document";
import { revisionsOf, documentAt, type Revision } from "./history";
import { Persistence } from "./persistence";
import { keepPoints } from "./links";
import { nameOf } from "./nodetypes";
import { pathOf } from "./paths";
import { Running } from "./running";
import { groupReference, slotsOf, valueKeys, type Slots } from "./slots";
import { sideIsOpen } from "./viewing";

/** What a step did beside the document, to be taken back and done again with it. */
export interface Effect {
  undo(): unknown;
  redo(): unknown;
}

interface Step {
  label: string;
  effect?: Effect;
  document: WorkflowDocument;
  /** Steps of the same kind in a row are one, such as the letters that are typed into a field. */
  kind?: string;
  at: number;
}

/** Milliseconds in which steps of one kind become one. */
const COALESCE_MS = 1500;
const MAX_UNDO = 200;

/** One open workflow: its document with what was done to it, what is selected, and its run. */
export class Session {
  readonly document = shallowRef<WorkflowDocument>({ nodes: [], edges: [] });
  readonly selected = shallowRef<ReadonlySet<string>>(new Set());
  readonly selectedEdges = shallowRef<ReadonlySet<string>>(new Set());
  readonly state = shallowRef<"loading" | "ready" | "failed">("loading");
  readonly error = shallowRef<ApiError>();
  /** A node that is to be selected and brought into view. */
  readonly focus = shallowRef<string>();
  /** An input whose control in the inspector is to be brought into view. */
  readonly edited = shallowRef<string>();
  /** Counts how often a run was asked for that lacks inputs. */
  readonly inputsAsked = shallowRef(0);
  /** What became of the document since an earlier revision, while that is looked at. */
  readonly comparison = shallowRef<Comparison>();
  /** What stands at the right in place of the node or the workflow. */
  readonly side = shallowRef<"history" | "assistant">();
  /** Why a button of a node did nothing, by the node. */
  readonly refused = shallowReactive(new Map<string, string>());
  /** The node below the pointer. */
  readonly hovered = shallowRef<string>();
  /** Whether all is dimmed but the path of the selected nodes. */
  readonly isTracing = shallowRef(false);
  /** What is to be done when it is closed. */
  readonly closing = new Set<() => void>();
  readonly running: Running;
  readonly persistence: Persistence;
  /** What was done before this page was opened, the latest first, for undo. */
  private readonly older = shallowRef<Revision[]>([]);
  private readonly past = shallowRef<Step[]>([]);
  private readonly future = shallowRef<Step[]>([]);
  private readonly slots = new Map<string, { of: unknown[]; slots: Slots }>();
  readonly definitions = useDefinitions();
  private readonly undoOlder = inTurn(() => attempt(() => this.takeBack()));

  constructor(readonly id: string) {
    this.running = markRaw(new Running(id));
    this.persistence = markRaw(
      new Persistence(id, {
        current: () => this.document.value,
        replace: (document, label) => this.take(document, label),
        rename: (label) => this.rename(label),
        swap: (before, after) => {
          if (this.document.value === before) this.document.value = after;
        },
      }),
    );
    void this.load();
  }

  readonly isChanged = computed(() => {
    const published = this.persistence.published.value;
    return published !== undefined && this.document.value !== published;
  });
  readonly undoLabel = computed(
    () => this.past.value.at(-1)?.label ?? (this.older.value.length > 1 ? t("editor.history.older") : undefined),
  );
  readonly redoLabel = computed(() => this.future.value.at(-1)?.label);
  /** What is on the canvas: while a revision is looked at, what was removed since too. */
  readonly shown = computed(() => this.comparison.value?.document ?? this.document.value);
  readonly index = computed(() => indexOf(this.shown.value));
  /** What leads to the nodes that are pointed at or selected, and from them. */
  readonly path = computed(() => {
    const { value: hovered } = this.hovered;
    const { value: selected } = this.selected;
    const isHeld = this.isTracing.value && selected.size > 0;
    return pathOf(this.shown.value, hovered !== undefined && !isHeld ? [hovered] : selected);
  });
  /** The nodes whose results in the run that is shown are of an earlier document. */
  readonly stale = computed(() => staleSince(this.running.ran.value, this.document.value));
  /** The nodes with edges or values of slots that they have no more. */
  readonly outdated = computed(() =>
    this.document.value.nodes.filter((node) => this.slotsOf(node.id).gone).map((node) => node.id),
  );

  /** Read the workflow, and what is being made of it. */
  async load(): Promise<void> {
    this.state.value = "loading";
    try {
      const older = revisionsOf(this.id).catch(() => []); // without them undo begins with what is done here
      const document = await this.persistence.load();
      await this.definitions.known; // nodes that are shown before are all drawn twice
      this.document.value = document;
      this.older.value = await older;
      this.past.value = this.future.value = [];
      this.state.value = "ready";
    } catch (thrown) {
      this.error.value = asError(thrown);
      this.state.value = "failed";
    }
  }

  close(): void {
    this.closing.forEach((end) => end());
    this.running.close();
    this.persistence.close();
  }

  /**
   * Change the document as one step that can be undone; before it has been read there is nothing to change. The points of
   * edges go with their nodes, and an `effect` is undone and redone with the step.
   */
  change(label: string, how: (document: WorkflowDocument) => WorkflowDocument, kind?: string, effect?: Effect): void {
    if (this.state.value !== "ready") return;
    const before = this.document.value;
    const next = keepPoints(before, how(before));
    if (next === before) return;
    const last = this.past.value.at(-1);
    const now = Date.now();
    if (kind !== undefined && last?.kind === kind && now - last.at < COALESCE_MS) {
      last.at = now;
    } else {
      this.past.value = [...this.past.value.slice(-MAX_UNDO), { label, document: before, kind, effect, at: now }];
    }
    this.future.value = [];
    this.show(next);
    this.persistence.changed(label);
  }

  /** Show a document that the server has already, as a step. */
  private take(document: WorkflowDocument, label: string): void {
    this.past.value = [...this.past.value.slice(-MAX_UNDO), { label, document: this.document.value, at: 0 }];
    this.future.value = [];
    this.show(document);
  }

  /** Call the last step by another name, where it came from the server. */
  private rename(label: string): void {
    const last = this.past.value.at(-1);
    if (last?.at === 0) this.past.value = [...this.past.value.slice(0, -1), { ...last, label }];
  }

  /** What there was before the last step. */
  before(): WorkflowDocument {
    return this.past.value.at(-1)?.document ?? this.document.value;
  }

  /** Take back the last step; where this page has none, the last one that the history knows. */
  undo(): void {
    if (this.past.value.length === 0) void this.undoOlder();
    else this.step(this.past, this.future, "undo");
  }

  private async takeBack(): Promise<void> {
    const [now, before] = this.older.value;
    if (now === undefined || before === undefined || this.past.value.length > 0) return;
    const drawn = this.document.value;
    const document = await documentAt(this.id, before.number, (stored) => this.persistence.read(stored));
    if (this.document.value !== drawn) return; // what was done meanwhile is not overwritten
    this.older.value = this.older.value.slice(1);
    const label = now.reason ?? "";
    this.future.value = [...this.future.value, { label, document: this.document.value, at: 0 }];
    this.show(document);
    this.persistence.changed(`${t("editor.undo")}: ${label}`);
  }

  redo(): void {
    this.step(this.future, this.past, "redo");
  }

  private step(from: typeof this.past, to: typeof this.past, way: "undo" | "redo"): void {
    const step = from.value.at(-1);
    if (step === undefined) return;
    from.value = from.value.slice(0, -1);
    to.value = [...to.value, { label: step.label, document: this.document.value, effect: step.effect, at: 0 }];
    this.show(step.document);
    this.persistence.changed(`${t(`editor.${way}`)}: ${step.label}`);
    step.effect?.[way]();
  }

  private show(document: WorkflowDocument): void {
    this.document.value = document;
    this.selected.value = new Set([...this.selected.value].filter((id) => nodeOf(document, id)));
    const edges = new Set(document.edges.map((edge) => edge.id));
    if ([...this.selectedEdges.value].some((id) => !edges.has(id))) {
      this.selectedEdges.value = new Set([...this.selectedEdges.value].filter((id) => edges.has(id)));
    }
    this.comparison.value = undefined;
  }

  /** Show an input of a node in the inspector. */
  edit(id: string, input: string): void {
    this.side.value = undefined;
    sideIsOpen.value = true;
    this.selected.value = new Set([id]);
    this.edited.value = input;
  }

  /** Show the form of the workflow, with the inputs that lack a value. */
  askInputs(): void {
    this.side.value = undefined;
    sideIsOpen.value = true;
    this.selected.value = new Set();
    this.inputsAsked.value++;
  }

  /** Mark on the canvas what became of the workflow since an earlier document. */
  compareWith(name: string, earlier: WorkflowDocument): void {
    this.comparison.value = compare(name, earlier, this.document.value);
  }

  /** Show a run, and what became of the workflow since it was run. */
  async openRun(runId: string): Promise<void> {
    const params = { path: { runId } };
    await this.running.open(runId);
    if (this.running.runId.value !== runId) return; // it is gone, or another one is shown by now
    const ran = await ask(api.GET("/api/runs/{runId}/workflow", { params }));
    if (this.running.runId.value !== runId) return;
    this.running.ran.value = asDocument(ran);
    const found = compare("", this.running.ran.value, this.document.value);
    this.comparison.value = found.nodes.size + found.edges.size > 0 ? found : undefined;
  }

  /** The slots of a node, made anew only where something that they depend on is another. */
  slotsOf(id: string): Slots {
    const document = this.shown.value;
    const node = nodeOf(document, id);
    if (node === undefined) return { inputs: {}, outputs: {}, innerInputs: {}, innerOutputs: {} };
    const edges = [...(this.index.value.into.get(id) ?? []), ...(this.index.value.outOf.get(id) ?? [])];
    const byType = this.definitions.byType;
    const reference = groupReference(node);
    const group = reference ? this.definitions.group(reference) : null; // an action of a store for each node would cost much
    const { interfaceInputs, interfaceOutputs } = document;
    const own = [node.type, node.configValues, node.policy, valueKeys(node).join("\n")];
    const of = [...own, interfaceInputs, interfaceOutputs, byType, group, ...edges];
    const known = this.slots.get(id);
    if (known && known.of.length === of.length && known.of.every((one, index) => one === of[index])) return known.slots;
    const slots = this.slotsIn(document, node);
    this.slots.set(id, { of, slots });
    return slots;
  }

  /** The slots that a node has in any document, such as one that is being made of the present one. */
  slotsIn(document: WorkflowDocument, node: WorkflowNode): Slots {
    return slotsOf(node, document, { byType: this.definitions.byType, group: (name) => this.definitions.group(name) });
  }

  /** The name of a node as people read it. */
  titleOf(node: WorkflowNode): string {
    return node.displayName || nameOf(this.definitions.byType.get(node.type), node.type);
  }
}

export const SESSION: InjectionKey<Session> = Symbol("session");
