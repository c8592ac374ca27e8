import { computed, ref, shallowRef } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { page } from "../api/page";
import { listen } from "../api/socket";
import { Conversation } from "../chat/conversation";
import { compare } from "../editor/comparison";
import { asDocument, nodeOf } from "../editor/document";
import { attempt } from "../kit/toasts";
import type { Session } from "../editor/session";

type Change = Schemas["PatchChange"];
type Result = Schemas["PatchResult"];

/** A workflow that the assistant proposes or has changed: the event `UPDATE_WORKFLOW_STATE_FROM_AGENT`. */
export interface Update {
  workflowId: string;
  /** Of a proposal the revision that it was made for, else the one that the workflow has now. */
  revision: string;
  workflow: object;
  changes: Change[];
  reason: string;
  mode: "preview" | "auto";
  operations: unknown[];
  conversationId?: string | null;
}

/** How the latest update stands; `unsaved`: something here was changed meanwhile, and nothing was overwritten. */
type Stage = "proposed" | "applied" | "refused" | "unsaved";

const NAME = "UPDATE_WORKFLOW_STATE_FROM_AGENT";
const ASKS_FIRST = "tavern.assistant.preview";

/** What is said with the assistant about one open workflow, and what came of it last. */
export class Assistant {
  readonly conversation = shallowRef<Conversation>();
  readonly update = shallowRef<Update>();
  readonly stage = ref<Stage>("proposed");
  /** What keeps a proposal from being applied now. */
  readonly problems = shallowRef<string[]>([]);
  /** Whether changes are shown before they are made. */
  readonly asksFirst = ref(localStorage.getItem(ASKS_FIRST) !== "no");
  readonly isBusy = computed(() => this.conversation.value?.active.value !== undefined);
  private readonly key: string;

  constructor(private readonly session: Session) {
    this.key = `tavern.assistant.${page.project.id}.${session.id}`;
    const kept = localStorage.getItem(this.key);
    if (kept !== null) {
      this.conversation.value = new Conversation(kept);
      const { value } = this.conversation;
      void attempt(() => value.load());
    }
    const stop = listen([NAME], ({ payload }) => this.onMessage(payload as unknown as Update));
    session.closing.add(() => {
      stop();
      this.conversation.value?.close();
    });
  }

  /** Begin anew; what was said stays in the chat. */
  forget(): void {
    this.conversation.value?.close();
    this.conversation.value = undefined;
    this.dismiss();
    localStorage.removeItem(this.key);
  }

  setAsksFirst(value: boolean): void {
    this.asksFirst.value = value;
    localStorage.setItem(ASKS_FIRST, value ? "yes" : "no");
  }

  /** Ask for something. The server reads the workflow as it has been saved, so that is done first. */
  async ask(message: string): Promise<void> {
    const { session } = this;
    this.dismiss();
    await session.persistence.flush();
    if (this.conversation.value === undefined) {
      const id = `${session.id.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40)}-assistant-${crypto.randomUUID().slice(0, 6)}`;
      localStorage.setItem(this.key, id);
      this.conversation.value = new Conversation(id);
    }
    const conversation = this.conversation.value;
    const body = {
      workflowId: session.id,
      message,
      mode: this.asksFirst.value ? "preview" : "auto",
      conversationId: conversation.id,
      runId: session.running.runId.value ?? null,
      selected: [...session.selected.value],
    };
    const run = await ask(api.POST("/api/assistant/requests", { body: body as never }));
    conversation.runs.set(run.id, run);
    if (conversation.messages.value.length > 0) await conversation.load();
  }

  private onMessage(update: Update): void {
    const { session } = this;
    if (update.workflowId !== session.id) return;
    if (update.mode === "auto") {
      this.take(update, update.workflow, update.revision);
      this.focusFirst(update);
    } else if (update.conversationId === this.conversation.value?.id) {
      this.update.value = update;
      this.problems.value = [];
      this.stage.value = "proposed";
      this.show();
    }
  }

  /** Take what the server has made of the workflow, and mark what changed. */
  private take(update: Update, workflow: object, revision: string): void {
    const { session } = this;
    const isTaken = session.persistence.adopt(session.persistence.read(workflow), revision, update.reason);
    this.update.value = update;
    this.stage.value = isTaken ? "applied" : "unsaved";
    if (isTaken) session.comparison.value = compare(update.reason, session.before(), session.document.value);
  }

  /** Show a proposal on the canvas. */
  show(): void {
    const update = this.update.value;
    if (update === undefined) return;
    this.session.comparison.value = compare(update.reason, this.session.document.value, asDocument(update.workflow));
    this.focusFirst(update);
  }

  private focusFirst({ changes }: Update): void {
    const first = changes.find((one) => one.what !== "edge" && nodeOf(this.session.shown.value, one.id));
    if (first) this.session.focus.value = first.id;
  }

  /** Make the change that is proposed. Where the workflow has changed since, the server makes it where nothing touches it. */
  async accept(): Promise<void> {
    const update = this.update.value;
    if (update === undefined) return;
    const { operations, revision, reason } = update;
    const body = { id: update.workflowId, operations, revision, reason };
    await this.session.persistence.change(async () => {
      if (this.update.value !== update) return; // it was made, or given up, while this waited
      const result = await patched(api.POST("/api/patches", { body: body as never }));
      if (result.applied && result.document)
        return this.take({ ...update, changes: result.changes ?? [] }, result.document, result.revision ?? "");
      this.stage.value = "refused";
      const touched = result.conflict?.touched ?? [];
      this.problems.value = [...touched, ...(result.problems ?? []).map((one) => `${one.message} ${one.hint}`)];
      this.session.comparison.value = undefined;
    });
  }

  /** Take the change back, as undo does. */
  undo(): void {
    this.session.undo();
    this.dismiss();
  }

  /** Dismiss the latest update: what was proposed is dropped, what was made stays. */
  dismiss(): void {
    this.update.value = undefined;
    this.problems.value = [];
    this.session.comparison.value = undefined;
  }

  /** Select a node that a text names, and bring it into view. */
  showNode(id: string): void {
    if (nodeOf(this.session.shown.value, id) === undefined) return;
    this.session.selected.value = new Set([id]);
    this.session.focus.value = id;
  }
}

/** What became of a patch; one that is not applied is answered with 409 and says why, as any other. */
async function patched(request: Promise<{ data?: Result; error?: unknown; response: Response }>): Promise<Result> {
  const answer = await request;
  const refused = answer.error as Partial<Result> | undefined;
  return answer.response.status === 409 && refused?.applied === false
    ? (refused as Result)
    : ask(Promise.resolve(answer));
}

const made = new WeakMap<Session, Assistant>();

/** The assistant of an open workflow; it lasts as long as its tab. */
export function assistantOf(session: Session): Assistant {
  let assistant = made.get(session);
  if (assistant === undefined) made.set(session, (assistant = new Assistant(session)));
  return assistant;
}
