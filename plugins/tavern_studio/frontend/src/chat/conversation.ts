import { computed, shallowReactive, shallowRef } from "vue";
import { api, ask, type ApiError, type Schemas } from "../api/client";
import { listen, onMissed, type Message } from "../api/socket";

type Trace = Schemas["AgentTrace"];
type HistoryMessage = Schemas["HistoryMessage"];
type TreeNode = Schemas["HistoryNode"];

/** A call that an agent made, as its trace tells it. */
export interface Call {
  place: string;
  toolId: string;
  arguments: unknown;
  state: "running" | "done" | "failed" | "waiting";
  result: string;
  taskId?: string;
}

export type Part =
  { kind: "text"; text: string } | { kind: "call"; call: Call } | { kind: "note"; text: string; isError: boolean };

/** What a person said, and what an agent did about it. */
export interface Turn {
  message: HistoryMessage;
  /** Whether nobody said anything before: the message is itself the first of what the agent said. */
  isOpening?: boolean;
  runId?: string;
  parts: Part[];
  /** The versions of this message, this one among them, in their order; none where it is the only one. */
  versions: string[];
  /** The message of the answer that has other versions, or else its first one; and the versions of it. */
  answer?: string;
  answers: string[];
  /** What was said in the end. */
  final?: HistoryMessage;
}

/** Whether a message is what another agent said, of several in a scene, than the one before. */
function isOfAnother({ message, runId }: HistoryMessage, before: HistoryMessage): boolean {
  return message.role === "assistant" && Boolean(message.name) && isAgentRun(runId) && runId !== before.runId;
}

const isAgentRun = (id: string | null | undefined): id is string => id?.startsWith("agent_") ?? false;

/** One conversation: its messages, the traces of the runs that they came from, and what comes while it is open. */
export class Conversation {
  readonly messages = shallowRef<HistoryMessage[]>([]);
  /** Whether another version is on its way; until then the next one cannot be asked for. */
  readonly isTurning = shallowRef(false);
  readonly tree = shallowRef<TreeNode[]>([]);
  readonly runs = shallowReactive(new Map<string, Schemas["AgentRun"]>());
  readonly traces = shallowReactive(new Map<string, Trace[]>());
  readonly fragments = shallowReactive(new Map<string, string>());
  private readonly stops: (() => void)[];
  /** Runs whose trace was read to its end, and nothing was heard or missed since. */
  private readonly whole = new Set<string>();
  /** What was asked for last of each run. */
  private readonly asked = new Map<string, symbol>();
  private pending: Trace[] = [];
  private begun = 0;
  private shown = 0;

  constructor(readonly id: string) {
    this.stops = [
      listen(["AGENT_TRACE"], (message) => this.onMessage(message)),
      listen(["CHAT_HISTORY"], ({ payload }) => payload.historyId === id && void this.look()),
      onMissed(() => {
        this.whole.clear();
        void this.look();
      }),
    ];
  }

  close(): void {
    this.stops.forEach((stop) => stop());
  }

  /** Read everything; a conversation that has not begun is empty. A run ends here together with what it said: between
   * them a person would act on messages that are not the last ones. What was asked for earlier never replaces what was
   * asked for later. */
  async load(): Promise<void> {
    const begun = ++this.begun;
    const params = { path: { id: this.id } };
    const known = await ask(
      api.GET("/api/agent-runs", { params: { query: { conversationId: this.id, limit: "100" } as never } }),
    );
    const missing = (error: ApiError) => {
      if (error.status === 404) return [];
      throw error;
    };
    const [messages, tree] = await Promise.all([
      ask(api.GET("/api/histories/{id}/messages", { params })).catch(missing),
      ask(api.GET("/api/histories/{id}/tree", { params })).catch(missing),
    ]);
    if (begun < this.shown) return;
    this.shown = begun;
    this.messages.value = messages as HistoryMessage[];
    this.tree.value = tree as TreeNode[];
    known.forEach((run) => this.runs.set(run.id, run));
    const wanted = new Set([
      ...this.messages.value.map((one) => one.runId),
      ...known.filter(isActive).map((run) => run.id),
    ]);
    await Promise.all([...wanted].filter(isAgentRun).map((run) => this.readTrace(run)));
  }

  /** Read everything, unless it does not come: what is there stays. */
  private look(): Promise<void> {
    return this.load().catch(() => undefined); // nobody has asked; it is read again with the next message
  }

  private async readTrace(run: string): Promise<void> {
    if (this.whole.has(run)) return;
    const trace = (await ask(api.GET("/api/agent-runs/{run}/trace", { params: { path: { run } } })).catch(
      () => [], // the messages say what came of it
    )) as Trace[];
    if (trace.some((one) => ENDS.has(one.kind))) this.whole.add(run);
    this.traces.set(run, joinTraces(trace, this.traces.get(run))); // steps may have been heard while it was read
  }

  private onMessage({ payload }: Message): void {
    const step = payload as unknown as Trace;
    if (step.conversationId !== this.id) return;
    this.pending.push(step);
    if (document.hidden) this.applyPending();
    else if (this.pending.length === 1) requestAnimationFrame(() => this.applyPending());
  }

  private applyPending(): void {
    const steps = this.pending;
    this.pending = [];
    for (const step of steps) {
      const id = step.agentRunId;
      if (step.kind === "fragment") {
        this.fragments.set(id, (this.fragments.get(id) ?? "") + step.text);
        continue;
      }
      if (["thought", "reply", "tool_call", "thinking", "error"].includes(step.kind)) this.fragments.delete(id);
      this.whole.delete(id);
      this.traces.set(id, joinTraces(this.traces.get(id), [step]));
      if (ENDS.has(step.kind) || step.kind === "started") void this.refreshRun(id);
    }
  }

  private async refreshRun(run: string): Promise<void> {
    const mine = Symbol();
    this.asked.set(run, mine);
    const found = await ask(api.GET("/api/agent-runs/{run}", { params: { path: { run } } })).catch(() => undefined); // as in `look`
    if (found === undefined || this.asked.get(run) !== mine) return;
    if (!isActive(found)) await this.look();
    this.runs.set(run, found);
  }

  readonly active = computed(() => [...this.runs.values()].find(isActive));

  readonly turns = computed<Turn[]>(() => {
    const made: Turn[] = [];
    let answers: HistoryMessage[] = [];
    const finish = () => {
      const turn = made.at(-1);
      const first = answers[0];
      if (turn !== undefined && first !== undefined) this.answer(turn, answers, first);
      answers = [];
    };
    for (const message of this.messages.value) {
      const run = answers[0]?.runId;
      const isObservation = message.message.role === "user" && isAgentRun(run) && message.runId === run;
      if (message.message.role === "user" && !isObservation) {
        finish();
        made.push({ message, parts: [], versions: this.versionsOf(message), answers: [] });
      } else {
        if (made.length === 0 || (answers[0] !== undefined && isOfAnother(message, answers[0]))) {
          finish();
          made.push({ message, isOpening: true, parts: [], versions: [], answers: [] });
        }
        answers.push(message);
      }
    }
    finish();
    const run = this.active.value;
    if (run !== undefined) this.showActive(run, made);
    return made;
  });

  /** Put what answered a message into its turn: a run of an agent by its trace, other messages as they are. */
  private answer(turn: Turn, answers: HistoryMessage[], first: HistoryMessage): void {
    turn.final = answers.findLast((one) => one.message.role === "assistant" && one.message.content);
    const several = [first, turn.final ?? first].find((one) => this.versionsOf(one).length > 0) ?? first;
    turn.answers = this.versionsOf(several);
    turn.answer = several.id;
    if (isAgentRun(first.runId)) {
      turn.runId = first.runId;
      turn.parts = partsOf(this.traces.get(first.runId) ?? [], this.fragments.get(first.runId));
      this.reworded(turn);
    } else {
      turn.parts = answers.map((one) => ({ kind: "text", text: one.message.content ?? "" }));
    }
  }

  /** A trace has what the agent said; a message that was reworded since is of no run. */
  private reworded({ final, parts, runId }: Turn): void {
    const last = parts.findLast((part) => part.kind === "text");
    if (last && final?.message.content && final.runId !== runId) last.text = final.message.content;
  }

  private showActive(run: Schemas["AgentRun"], made: Turn[]): void {
    if (made.some((turn) => turn.runId === run.id)) return;
    const trace = this.traces.get(run.id) ?? [];
    const parts = partsOf(trace, this.fragments.get(run.id));
    const last = made.at(-1);
    if (last !== undefined && last.runId === undefined && last.parts.length === 0 && !last.isOpening) {
      Object.assign(last, { runId: run.id, parts });
      return;
    }
    const content = String(trace.find((one) => one.kind === "started")?.data?.message ?? "");
    const message = { id: run.id, message: { role: "user", content }, createdAt: run.startedAt } as HistoryMessage;
    made.push({ message, runId: run.id, parts, versions: [], answers: [] });
  }

  private versionsOf(message: HistoryMessage): string[] {
    const parent = message.parentId ?? undefined;
    const same = this.tree.value.filter(
      (one) => (one.parentId ?? undefined) === parent && one.role === message.message.role,
    );
    return same.length > 1 ? same.map((one) => one.id) : [];
  }

  /** Let an agent answer a message. */
  async say(profileId: string, message: string, images: readonly Schemas["ChatImage"][] = []): Promise<void> {
    await this.start(profileId, { message, ...(images.length && { images }) });
  }

  /** Let a run that stopped before its reply resume. */
  async resume(run: string): Promise<void> {
    const resumed = await ask(api.POST("/api/agent-runs/{run}/resume", { params: { path: { run } } }));
    this.whole.delete(run);
    this.runs.set(run, resumed);
  }

  /** Let an agent answer a message anew, or another wording of it; what was there stays beside it. */
  async sayAgain(profileId: string, turn: Turn, content: string): Promise<void> {
    let parentId = turn.message.id;
    let head = this.messages.value.at(-1)?.id ?? parentId;
    if (content !== turn.message.message.content) {
      const params = { path: { id: this.id, message: parentId } };
      const body = { content, head } as never;
      const kept = await ask(api.POST("/api/histories/{id}/messages/{message}/edit", { params, body }));
      parentId = head = kept.at(-1)?.id ?? parentId;
    }
    await this.start(profileId, { message: "", parentId, head });
  }

  /** Keep another wording of an answer; what was there stays beside it. */
  async reword(turn: Turn, content: string): Promise<boolean> {
    const head = this.messages.value.at(-1)?.id;
    if (turn.final === undefined || head === undefined) return false;
    const params = { path: { id: this.id, message: turn.final.id } };
    const body = { content, head, keepRest: true } as never;
    await ask(api.POST("/api/histories/{id}/messages/{message}/edit", { params, body }));
    await this.load();
    return true;
  }

  private async start(profileId: string, fields: Record<string, unknown>): Promise<void> {
    const body = { conversationId: this.id, ...fields } as never;
    const run = await ask(api.POST("/api/agents/{id}/runs", { params: { path: { id: profileId } }, body }));
    this.runs.set(run.id, run);
    if (this.messages.value.length > 0) await this.load(); // a conversation that begins is there with its first event
  }

  async stop(): Promise<void> {
    const run = this.active.value?.id;
    if (run) await ask(api.POST("/api/agent-runs/{run}/interrupt", { params: { path: { run } } }));
  }

  /** Show another version of a message, with what came after it latest. */
  async show(version: string): Promise<void> {
    const body = { messageId: version, head: this.messages.value.at(-1)?.id } as never;
    this.isTurning.value = true;
    try {
      await ask(api.POST("/api/histories/{id}/active", { params: { path: { id: this.id } }, body }));
      await this.load();
    } finally {
      this.isTurning.value = false;
    }
  }
}

const ENDS = new Set(["reply", "limit", "error", "interrupted"]);

/** All steps of two readings of a run's trace, in their order. */
export function joinTraces(one: Trace[] = [], other: Trace[] = []): Trace[] {
  const steps = new Map([...other, ...one].map((step) => [step.seq, step]));
  return [...steps.values()].sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
}

export function isActive(run: Schemas["AgentRun"]): boolean {
  return ["running", "waiting", "paused"].includes(run.status);
}

/** Put the steps of a trace together: texts, calls with what came of them, and what went wrong. */
export function partsOf(trace: Trace[], fragment = ""): Part[] {
  const parts: Part[] = [];
  const open: Call[] = [];
  for (const step of trace) {
    const data = (step.data ?? {}) as Record<string, unknown>;
    const toolId = String(data.toolId ?? "");
    const call = open.find((one) => one.toolId === toolId && one.state !== "done" && one.state !== "failed");
    switch (step.kind) {
      case "thought":
      case "reply":
        if (step.text.trim()) parts.push({ kind: "text", text: step.text });
        break;
      case "tool_call": {
        const made: Call = { place: `${step.seq}`, toolId, arguments: data.arguments, state: "running", result: "" };
        open.push(made);
        parts.push({ kind: "call", call: made });
        break;
      }
      case "tool_running": // of an answer's call it was said before; others are made by nodes, and by what was called
        if (!call) {
          const made: Call = { place: `${step.seq}`, toolId, arguments: data.arguments, state: "running", result: "" };
          open.push(made);
          parts.push({ kind: "call", call: made });
        }
        break;
      case "awaiting_approval":
        if (call) Object.assign(call, { state: "waiting", taskId: String(data.taskId ?? "") });
        break;
      case "tool_output":
      case "observation":
        if (call) Object.assign(call, { state: data.status === "done" ? "done" : "failed", result: step.text });
        break;
      case "limit":
      case "error":
      case "interrupted":
      case "warning":
        parts.push({ kind: "note", text: step.text, isError: step.kind === "error" });
        break;
    }
  }
  if (fragment.trim()) parts.push({ kind: "text", text: fragment });
  return parts;
}
