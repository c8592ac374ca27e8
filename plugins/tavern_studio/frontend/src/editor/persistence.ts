import { computed, shallowRef, watch } from "vue";
import { api, ask, askWhole, type ApiError, type Schemas } from "../api/client";
import { asError } from "../api/resource";
import { connection, listen, onMissed, type Message } from "../api/socket";
import { t } from "../i18n";
import { say, unsay } from "../kit/toasts";
import { isSame } from "./comparison";
import { removeLocalDraft, saveLocalDraft, localDraft } from "../kit/drafts";
import { asDocument, placed, unplacedIn, type Places, type WorkflowDocument } from "./document";

type Draft = Schemas["WorkflowDraft"];

/** Milliseconds after a change until the server gets it. */
const AUTOSAVE_DELAY_MS = 1000;
/** Milliseconds until it is tried again where the server did not take it. */
const RETRY_DELAY_MS = 5000;

/** Refusals that hold for good: of what the document is, until that is changed; of who asks, until that is somebody else; and of others. */
const OF_CONTENT = [400, 413, 415, 422];
const OF_PERSON = [401, 403];
const FOR_GOOD = [...OF_CONTENT, ...OF_PERSON, 404, 409];

/** What the server has of the workflow. */
interface Found {
  published: WorkflowDocument;
  tag: string;
  draft?: Draft;
}

/** What this saves: the document as it is now, and how another one takes its place. */
interface Drawn {
  current(): WorkflowDocument;
  /** Show a document that came from elsewhere, as one step. */
  replace(document: WorkflowDocument, label: string): void;
  /** Call the step that last came from elsewhere by another name. */
  rename(label: string): void;
  /** Replace the document by the same one in another object, which is no step. */
  swap(before: WorkflowDocument, after: WorkflowDocument): void;
}

/**
 * Saves what is drawn: in this browser at once, on the server as the workflow's draft soon after, and in its file when it
 * is published. Of what somebody else changes meanwhile nothing is overwritten: it is shown, or `conflict` is set.
 */
export class Persistence {
  /** The document of the file. */
  readonly published = shallowRef<WorkflowDocument>();
  /** `file`: the file has changed since the draft was begun; `draft`: somebody else has changed the draft. */
  readonly conflict = shallowRef<"file" | "draft">();
  readonly state = shallowRef<"saved" | "saving" | "unsaved">("saved");
  readonly isPublishing = shallowRef(false);
  /** Whether the server takes drafts of it: not of a plugin's workflow, nor for people who may only read. */
  readonly maySave = shallowRef(true);
  /** Why the server has not taken the draft, where asking once more would not help. */
  readonly refusal = shallowRef<ApiError>();
  readonly isBusy = computed(() => this.isPublishing.value || this.state.value === "saving");
  /** The nodes that are shown and have no place yet: the canvas lays them out. */
  readonly unplaced = shallowRef<ReadonlySet<string>>(new Set());
  private places: Places = new Map();
  private fileTag = "";
  private draftTag = "";
  private reasons: string[] = [];
  /** What the server was given and may have taken, though no answer came: the first and the last of it. */
  private sent: WorkflowDocument[] = [];
  private timer?: ReturnType<typeof setTimeout>;
  private sending?: Promise<void>;
  private publishing?: Promise<boolean>;
  /** Whether others changed something before this was read for the first time. */
  private isBehind = false;
  /** Whether nothing is sent, since it was refused for good. */
  private isHeld = false;
  private isClosed = false;
  private readonly stops: (() => void)[];

  constructor(
    readonly id: string,
    private readonly drawn: Drawn,
  ) {
    this.stops = [
      listen(["WORKFLOW_CHANGED"], (message) => void this.onMessage(message)),
      onMissed(() => void this.refresh()),
      watch(connection, (now) => now === "open" && this.resume()),
    ];
  }

  /** The last draft is sent once more; where it is not taken, it stays in this browser. */
  close(): void {
    unsay(this.id);
    this.isClosed = true;
    this.stops.forEach((stop) => stop());
    if (this.timer !== undefined) void this.flush();
  }

  /** Read the file and its draft; return what is to be shown. */
  async load(): Promise<WorkflowDocument> {
    const [found, local] = await Promise.all([this.find(), localDraft(this.id)]);
    const shown = this.applyServerState(found);
    if (this.isBehind) void this.refresh();
    if (local === undefined) return shown;
    if (isSame(local.document, shown)) {
      void removeLocalDraft(this.id); // the server has taken it, and the answer never came
      return shown;
    }
    this.sent = local.sent ?? [];
    if (local.etag !== this.draftTag && !this.isOwn(shown)) this.conflict.value = "draft";
    else this.plan([]);
    return local.document;
  }

  private async find(): Promise<Found> {
    const params = { params: { path: { workflowId: this.id } } };
    const [{ data, response }, draft] = await Promise.all([
      askWhole(api.GET("/api/workflows/{workflowId}", params)),
      ask(api.GET("/api/workflows/{workflowId}/draft", params)).catch(noneIfRefused),
    ]);
    return { published: this.read(data), tag: tagOf(response), draft };
  }

  /** Return a document as the server has it, with the places that this page has given it. */
  read(stored: object): WorkflowDocument {
    const lacking = unplacedIn(stored).filter((id) => !this.places.has(id));
    if (lacking.length > 0) this.unplaced.value = new Set([...this.unplaced.value, ...lacking]);
    return asDocument(stored, this.places);
  }

  private shownOf({ published, draft }: Found): WorkflowDocument {
    return draft?.workflow ? this.read(draft.workflow) : published;
  }

  /**
   * Show nodes where they were laid out. That is no change: it is saved with the next one, and until then what is read
   * of the workflow stands there too.
   */
  place(places: Places): void {
    const lacking = this.unplaced.value;
    this.unplaced.value = new Set();
    this.places = new Map([...this.places, ...places]);
    const before = this.drawn.current();
    const after = placed(before, places, lacking);
    const published = this.published.value;
    if (published === before) this.published.value = after;
    else if (published !== undefined) this.published.value = placed(published, places, lacking);
    this.drawn.swap(before, after);
  }

  /** Hold on to what the server has; return what is to be shown of it. */
  private applyServerState(found: Found): WorkflowDocument {
    const { published, tag, draft } = found;
    this.published.value = published;
    this.fileTag = this.draftTag = tag;
    this.maySave.value = draft !== undefined;
    this.conflict.value = undefined;
    if (draft !== undefined) this.setRevision(draft);
    return this.shownOf(found);
  }

  private setRevision(draft: Draft): void {
    this.draftTag = draft.revision;
    this.allow();
    this.conflict.value = draft.workflow && draft.base !== draft.published ? "file" : undefined;
  }

  /** Save what was just done. */
  changed(reason: string): void {
    this.keep();
    if (OF_CONTENT.includes(this.refusal.value?.status ?? 0)) this.isHeld = false;
    this.plan([reason]);
  }

  /** Send at once what waits, now that the server is there again, and knows who is here. */
  private resume(): void {
    if (OF_PERSON.includes(this.refusal.value?.status ?? 0)) this.allow();
    if (this.state.value === "unsaved") void this.flush();
  }

  private allow(): void {
    this.isHeld = false;
    this.refusal.value = undefined;
  }

  /** Send what was refused once more. */
  async retry(): Promise<void> {
    this.allow();
    await this.flush();
  }

  private keep(): void {
    saveLocalDraft(this.id, { document: this.drawn.current(), etag: this.draftTag, sent: this.sent });
  }

  private recordSent(document: WorkflowDocument): void {
    if (this.sent.at(-1) !== document) this.sent = [...this.sent.slice(0, 1), document];
  }

  /** Whether the server has a document from here, be it from before the page was loaded again. */
  private isOwn(document: WorkflowDocument): boolean {
    return this.sent.some((one) => isSame(one, document));
  }

  private plan(reasons: string[], after = AUTOSAVE_DELAY_MS): void {
    this.reasons.push(...reasons);
    this.state.value = "unsaved";
    if (!this.isSending || this.isClosed) return;
    this.timer ??= setTimeout(() => void this.flush(), after);
  }

  private get isSending(): boolean {
    return this.conflict.value !== "draft" && this.maySave.value && !this.isHeld;
  }

  /** Give the server what it has not. */
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    await this.sending;
    if (this.state.value === "unsaved" && this.isSending) this.sending = this.send();
    await this.sending; // which may have been begun by who waited too
  }

  private async send(mine = false): Promise<void> {
    const document = this.drawn.current();
    const reasons = this.reasons.splice(0);
    this.state.value = "saving";
    this.recordSent(document);
    this.keep();
    try {
      const request = api.PUT("/api/workflows/{workflowId}/draft", {
        params: { path: { workflowId: this.id } },
        body: { workflow: document as never, reason: [...new Set(reasons)].join(", ").slice(0, 500), rebase: mine },
        headers: { "If-Match": mine ? "*" : `"${this.draftTag}"` },
      });
      this.setRevision(await ask(request));
      this.sent = [];
      if (this.drawn.current() !== document) {
        this.keep();
        this.plan([]);
      } else {
        this.state.value = "saved";
        await removeLocalDraft(this.id);
      }
    } catch (thrown) {
      const error = asError(thrown);
      const { status } = error;
      this.state.value = "unsaved";
      this.reasons.unshift(...reasons);
      if (status === 412 && (await this.hasOwn())) return this.send();
      if (status === 412) this.conflict.value = "draft";
      else if (FOR_GOOD.includes(status)) {
        this.isHeld = true;
        this.refusal.value = error;
      } else this.plan([], RETRY_DELAY_MS);
    }
  }

  /** Whether the server has changed its draft only by what came from here; if so, saving resumes from that. */
  private async hasOwn(): Promise<boolean> {
    const found = await this.find().catch(() => undefined); // so it is a conflict, which is shown
    if (found === undefined || !this.isOwn(this.shownOf(found))) return false;
    this.applyServerState(found);
    return true;
  }

  /** Write the file. Where somebody else has written it meanwhile, nothing is, and `conflict` is set. */
  publish(): Promise<boolean> {
    this.isPublishing.value = true;
    this.publishing ??= this.write().finally(() => {
      this.isPublishing.value = false;
      this.publishing = undefined;
    });
    return this.publishing;
  }

  private async write(): Promise<boolean> {
    await this.flush();
    if (this.conflict.value !== undefined) return false;
    const before = this.drawn.current();
    const document = { ...before, updatedAt: new Date().toISOString() };
    this.recordSent(document);
    try {
      const request = api.PUT("/api/workflows/{workflowId}", {
        params: { path: { workflowId: this.id } },
        body: document as never,
        headers: { "If-Match": `"${this.fileTag}"` },
      });
      this.onPublished(before, document, tagOf((await askWhole(request)).response));
      return true;
    } catch (thrown) {
      const error = asError(thrown);
      if (error.status !== 412) throw error;
      if (await this.hasOwn()) return this.write();
      this.conflict.value = "file";
      return false;
    }
  }

  private onPublished(before: WorkflowDocument, document: WorkflowDocument, tag: string): void {
    this.fileTag = this.draftTag = tag;
    this.published.value = document;
    this.allow();
    this.sent = [];
    this.drawn.swap(before, document);
    if (this.drawn.current() !== document) return this.keep(); // something was done meanwhile
    clearTimeout(this.timer);
    this.timer = undefined;
    this.state.value = "saved";
    void removeLocalDraft(this.id);
  }

  /** Put what is shown here in the place of what somebody else has made of the workflow. */
  async keepMine(): Promise<void> {
    this.conflict.value = undefined;
    await this.sending;
    const done = this.overwrite();
    this.sending = done.catch(() => undefined); // what is published meanwhile waits for it; `done` itself fails below
    await done;
  }

  private async overwrite(): Promise<void> {
    await this.send(true);
    const params = { params: { path: { workflowId: this.id } } };
    const { data, response } = await askWhole(api.GET("/api/workflows/{workflowId}", params));
    this.fileTag = tagOf(response);
    this.published.value = this.read(data);
  }

  /** Give up what is shown here for what somebody else has made of the workflow; the history keeps it. */
  async takeTheirs(): Promise<void> {
    const isFile = this.conflict.value === "file";
    clearTimeout(this.timer);
    this.timer = undefined;
    await removeLocalDraft(this.id);
    const params = { params: { path: { workflowId: this.id } }, headers: { "If-Match": "*" } };
    if (isFile) await ask(api.DELETE("/api/workflows/{workflowId}/draft", params));
    this.state.value = "saved";
    this.sent = [];
    this.drawn.replace(this.applyServerState(await this.find()), t("editor.conflict.theirs"));
  }

  /** Let the server change the draft; what it publishes about that is known here by then. */
  async change<T>(how: () => Promise<T>): Promise<T> {
    await this.flush();
    const done = how();
    this.sending = done.then(
      () => undefined,
      () => undefined, // who waits for `done` is told
    );
    return done;
  }

  /**
   * Show what the server has made of the draft, as one step with this name. Where something here waits to be kept,
   * nothing is overwritten: there is a conflict.
   */
  adopt(document: WorkflowDocument, revision: string, label: string): boolean {
    if (this.state.value !== "saved") {
      this.conflict.value = "draft";
      return false;
    }
    this.draftTag = revision;
    if (isSame(document, this.drawn.current())) this.drawn.rename(label);
    else this.drawn.replace(document, label);
    return true;
  }

  private async onMessage({ payload }: Message): Promise<void> {
    if (payload.workflowId !== this.id) return;
    await this.sending; // it may be this page's own
    if (this.isPublishing.value) return;
    if (payload.change === "deleted" || payload.change === "moved") {
      this.maySave.value = false; // until it is there again: a draft that is thrown away meanwhile would come back
      say(t(`editor.${payload.change}Elsewhere`, { to: String(payload.to) }), "bad", this.id);
    } else if (payload.revision !== this.draftTag && payload.revision !== this.fileTag) {
      if (this.state.value === "unsaved") {
        this.maySave.value = true;
        this.allow();
        this.plan([]);
      }
      await this.refresh();
    }
  }

  /** Show what somebody else has made of the workflow, where nothing here waits to be kept. */
  private async refresh(): Promise<void> {
    this.isBehind = this.published.value === undefined;
    if (this.isBusy.value || this.state.value !== "saved" || this.isBehind) return;
    const known = this.fileTag + this.draftTag;
    const found = await this.find().catch(() => undefined); // nobody has asked; what is shown stays until the next message
    // What is saved or published meanwhile is compared with what the server has; what has been may be newer than this.
    if (found === undefined || this.isBusy.value || this.state.value !== "saved") return;
    if (known !== this.fileTag + this.draftTag) return this.refresh();
    const current = this.drawn.current();
    const shown = this.applyServerState(found);
    if (isSame(shown, current)) this.drawn.swap(current, shown);
    else this.drawn.replace(shown, t("editor.changedElsewhere"));
  }
}

/** Whether the server takes no drafts of the workflow, or none from this person. */
function isRefused(thrown: unknown): boolean {
  return [403, 404, 409].includes(asError(thrown).status);
}

function noneIfRefused(thrown: unknown): undefined {
  if (!isRefused(thrown)) throw thrown;
}

function tagOf(response: Response): string {
  return (response.headers.get("ETag") ?? "").replaceAll('"', "");
}
