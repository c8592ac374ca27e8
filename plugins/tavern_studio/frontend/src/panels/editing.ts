import { computed, onScopeDispose, ref, shallowRef, watch } from "vue";
import type { ApiError } from "../api/client";
import { asError } from "../api/resource";
import { t } from "../i18n";
import { inTurn } from "../kit/stale";
import { say } from "../kit/toasts";
import {
  newId,
  previewPanel,
  readPanel,
  savePanel,
  type PanelDocument,
  type PanelElement,
  type ShownPanel,
} from "./documents";
import { below, settled, type Place } from "./layout";

const SIZES = { workflow: { w: 12, h: 10 }, agent: { w: 6, h: 12 }, text: { w: 12, h: 2 } };
const WAIT = 300;

/** A panel that is being edited: its document with undo, what it will look like, and whether it is saved. */
export class PanelEditing {
  readonly document = shallowRef<PanelDocument>();
  readonly shown = shallowRef<ShownPanel>();
  /** What the assistant would make of it; while there is one, it is shown in the place of the document. */
  readonly proposed = shallowRef<PanelDocument>();
  /** The elements that are new or other in it. */
  readonly marked = shallowRef<string[]>([]);
  readonly error = shallowRef<ApiError>();
  readonly refused = ref("");
  readonly isSaving = ref(false);
  private readonly saved = shallowRef<PanelDocument>();
  private readonly past = shallowRef<PanelDocument[]>([]);
  private tag = "";
  private due: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  private readonly visible = computed(() => this.proposed.value ?? this.document.value);
  readonly isChanged = computed(() => this.document.value !== this.saved.value);
  readonly canUndo = computed(() => this.past.value.length > 0);
  readonly places = computed<Place[]>(() =>
    settled((this.visible.value?.elements ?? []).map((one) => placeOf(one, this.shown.value))),
  );

  constructor(readonly id: string) {
    watch(this.visible, () => this.previewSoon());
    onScopeDispose(() => clearTimeout(this.due));
  }

  get revision(): string {
    return this.tag.replaceAll('"', "");
  }

  async load(): Promise<void> {
    try {
      const { document, tag } = await readPanel(this.id);
      this.tag = tag;
      this.saved.value = this.document.value = document;
      this.past.value = [];
      this.error.value = undefined;
      this.refused.value = "";
    } catch (thrown) {
      this.error.value = asError(thrown);
    }
  }

  /** Put another document in the place of this one; that is one step for undo. */
  change(to: (before: PanelDocument) => PanelDocument): void {
    const before = this.document.value;
    if (before === undefined) return;
    const after = to(before);
    if (JSON.stringify(after) === JSON.stringify(before)) return;
    this.past.value = [...this.past.value.slice(-99), before];
    this.document.value = after;
  }

  undo(): void {
    const before = this.past.value.at(-1);
    if (before === undefined) return;
    this.past.value = this.past.value.slice(0, -1);
    this.document.value = before;
  }

  changeElement(id: string, change: Partial<PanelElement>): void {
    this.change((before) => ({
      ...before,
      elements: before.elements.map((one) => (one.id === id ? { ...one, ...change } : one)),
    }));
  }

  place(places: Place[]): void {
    const byId = new Map(places.map(({ id, x, y, w, h }) => [id, { x, y, w, h }]));
    this.change((before) => ({
      ...before,
      elements: before.elements.map((one) => ({ ...one, ...byId.get(one.id) })),
    }));
  }

  add(kind: PanelElement["kind"], target: string, title: string): string {
    const taken = this.document.value?.elements.map((one) => one.id) ?? [];
    const id = newId(target || kind, taken);
    const text = kind === "text" ? t("panels.someText") : "";
    const place = below(this.places.value, SIZES[kind]);
    const element = { id, kind, target, title, ...(text && { text }), ...place } as PanelElement;
    this.change((before) => ({ ...before, elements: [...before.elements, element] }));
    return id;
  }

  remove(id: string): void {
    this.change((before) => ({ ...before, elements: before.elements.filter((one) => one.id !== id) }));
  }

  /** Take what the server has made of the panel. */
  adopt(document: PanelDocument, revision: string): void {
    this.change(() => document);
    this.saved.value = this.document.value;
    this.tag = `"${revision}"`;
  }

  readonly save = inTurn(async (): Promise<boolean> => {
    const sent = this.document.value;
    if (sent === undefined || sent === this.saved.value) return true;
    this.isSaving.value = true;
    this.refused.value = "";
    try {
      this.tag = await savePanel(this.id, sent, this.tag);
      this.saved.value = sent;
      say(t("kit.saved"));
      return true;
    } catch (thrown) {
      const found = asError(thrown);
      this.refused.value =
        found.status === 412 ? t("panels.changedElsewhere") : found.message || t(`errors.${found.code}`);
      return false;
    } finally {
      this.isSaving.value = false;
    }
  });

  private previewSoon(): void {
    clearTimeout(this.due);
    this.due = setTimeout(() => void this.preview(), this.shown.value === undefined ? 0 : WAIT);
  }

  private async preview(): Promise<void> {
    const { value } = this.visible;
    if (value === undefined) return;
    const mine = ++this.asked;
    try {
      const shown = await previewPanel(value);
      if (mine === this.asked) [this.shown.value, this.refused.value] = [shown, ""];
    } catch (thrown) {
      if (mine === this.asked) this.refused.value = asError(thrown).message;
    }
  }
}

function placeOf(element: PanelElement, shown: ShownPanel | undefined): Place {
  const known = shown?.elements?.find((one) => one.id === element.id);
  const size = SIZES[element.kind];
  return {
    id: element.id,
    x: element.x ?? known?.x ?? 0,
    y: element.y ?? known?.y ?? 1000,
    w: element.w ?? known?.w ?? size.w,
    h: element.h ?? known?.h ?? size.h,
  };
}
