import { computed, shallowReactive, shallowRef } from "vue";
import { api, ApiError, ask, type Schemas } from "../api/client";
import { asError } from "../api/resource";
import { listen, onMissed, type Message } from "../api/socket";
import { t } from "../i18n";
import { joined } from "../kit/pieces";
import { say } from "../kit/toasts";
import { askHooks } from "../registry/hooks";
import { service } from "../registry/services";
import type { WorkflowDocument } from "./document";

/** Outputs by node and slot. */
export type Outputs = Record<string, Record<string, unknown>>;

type NodeStatus = "queued" | "running" | "complete" | "error" | "interrupted" | "skipped";

/** What is known of a node in the run that is shown. */
export interface NodeRun {
  status: NodeStatus;
  /** Milliseconds: when it began here, and how long it took. */
  began?: number;
  took?: number;
  cached?: boolean;
  bypassed?: boolean;
  given?: boolean;
  progress?: { value: number; max?: number; message?: string };
  /** Of a loop: how often what lies in it was run. */
  iterations?: number;
  /** What a cluster did for it. */
  remote?: Schemas["RemoteWork"];
  /** What has streamed so far, by output. */
  stream?: Record<string, string>;
  output?: Record<string, unknown> | null;
  error?: Schemas["ErrorInfo"];
}

const MOST_STEPS = 400;
const INTERFACE = "__WORKFLOW_INTERFACE_OUTPUTS__";

/** The run that a workflow's canvas shows: started here or elsewhere, followed by events. */
export class Running {
  readonly runId = shallowRef<string>();
  readonly status = shallowRef<NodeStatus>();
  readonly error = shallowRef<Schemas["ErrorInfo"]>();
  readonly outputs = shallowRef<Record<string, unknown>>({});
  readonly streams = shallowReactive<Record<string, string>>({});
  readonly nodes = shallowReactive(new Map<string, NodeRun>());
  /** What its agent nodes did while it was followed: the latest steps. */
  readonly trace = shallowRef<Schemas["AgentTrace"][]>([]);
  /** The document that is run, where this page knows it. */
  readonly ran = shallowRef<WorkflowDocument>();
  /** A run of this workflow that was begun elsewhere, and is not the one that is shown. */
  readonly elsewhere = shallowRef<string>();
  readonly isActive = computed(() => this.status.value === "queued" || this.status.value === "running");
  private readonly stops: (() => void)[];
  private early: Message[] = [];
  private pending: Message[] = [];
  /** What is being asked for: the run to be started, or one as it stands; what is heard meanwhile is newer and waits. */
  private asking?: symbol;
  /** Whether it was stopped before it had an id. */
  private isUnwanted = false;
  private frame = 0;

  constructor(private readonly workflowId: string) {
    const types = ["EXECUTION_STATUS_UPDATE", "NODE_*", "WORKFLOW_INTERFACE_YIELD", "AGENT_TRACE"];
    this.stops = [listen(types, (message) => this.onMessage(message)), onMissed(() => this.missed())];
  }

  close(): void {
    this.stops.forEach((stop) => stop());
    cancelAnimationFrame(this.frame);
  }

  /**
   * Run a document as it stands, with values for the workflow's inputs; `targets` are the nodes to run to, `overrides`
   * outputs that are given.
   */
  async start(
    document: WorkflowDocument,
    inputs: Record<string, unknown>,
    targets: string[] = [],
    overrides: Outputs = {},
  ): Promise<void> {
    await this.begin(async () => {
      this.ran.value = document;
      const body = { ...(await this.asked(document, inputs)), targets, overrides };
      return (await service("workflowManager").execute(body)).promptId;
    });
  }

  /**
   * Continue the run that is shown with a document as it stands: what is different since is run again, with all that
   * follows from it. Returns the nodes whose results were kept.
   */
  async resume(document: WorkflowDocument, inputs: Record<string, unknown>, overrides: Outputs): Promise<string[]> {
    const failed = this.runId.value;
    if (failed === undefined) return [];
    let kept: string[] = [];
    try {
      await this.begin(async () => {
        this.ran.value = document;
        const body = { ...(await this.asked(document, inputs)), overrides } as never;
        const params = { path: { runId: failed } };
        const resumed = await ask(api.POST("/api/runs/{runId}/resume", { params, body }));
        kept = resumed.kept ?? [];
        return resumed.runId;
      });
    } catch (thrown) {
      if (this.status.value === undefined) await this.open(failed);
      throw thrown;
    }
    return kept;
  }

  private async asked(document: WorkflowDocument, inputs: Record<string, unknown>): Promise<Record<string, unknown>> {
    const changed = await askHooks("workflow:before-execute", { workflow: this.workflowId, document, inputs });
    const shown = changed.document as unknown as WorkflowDocument;
    return { ...promptOf(shown), workflowId: this.workflowId, inputs: changed.inputs };
  }

  /** Show the run that is asked for, as soon as it has an id. */
  private async begin(ask: () => Promise<string>): Promise<void> {
    this.reset("queued");
    const mine = (this.asking = Symbol());
    let runId: string;
    try {
      runId = await ask();
    } catch (thrown) {
      if (this.asking === mine) this.reset(undefined);
      throw thrown;
    }
    if (this.asking !== mine) return; // another run is shown by now
    this.asking = undefined;
    this.runId.value = runId;
    const early = this.early.filter((message) => runOf(message) === this.runId.value);
    this.early = [];
    early.forEach((message) => this.apply(message));
    if (this.isUnwanted) await this.interrupt();
  }

  async interrupt(): Promise<void> {
    const promptId = this.runId.value;
    this.isUnwanted = promptId === undefined;
    if (promptId) await service("workflowManager").interrupt(promptId);
  }

  /** Show a run that is there already. */
  async open(runId: string): Promise<void> {
    this.reset("queued");
    this.runId.value = runId;
    this.elsewhere.value = undefined;
    await this.refresh();
  }

  /** Show a run that was begun elsewhere, or offer it where another one is shown. */
  private async look(promptId: string, status: string): Promise<void> {
    if (status !== "running") return;
    // The list, and not the run: one that is part of other work may be gone already.
    const query = { workflowId: this.workflowId, limit: "10" } as never;
    const { runs } = await ask(api.GET("/api/runs", { params: { query } })).catch(
      () => ({ runs: [] }), // nobody has asked for it; the view of runs has it
    );
    if (!runs.some((run) => run.id === promptId) || this.runId.value === promptId) return;
    if (this.runId.value === undefined && this.status.value === undefined) await this.open(promptId);
    else this.elsewhere.value = promptId;
  }

  private reset(status: NodeStatus | undefined): void {
    this.runId.value = undefined;
    this.status.value = status;
    this.error.value = undefined;
    this.ran.value = undefined;
    this.outputs.value = {};
    for (const key of Object.keys(this.streams)) delete this.streams[key];
    this.nodes.clear();
    this.trace.value = [];
    this.early = [];
    this.pending = [];
    this.asking = undefined;
    this.isUnwanted = false;
  }

  /** Ask for the run as it stands, such as after messages were missed. */
  async refresh(): Promise<void> {
    const runId = this.runId.value;
    if (!runId) return;
    const mine = (this.asking = Symbol());
    const found = await ask(api.GET("/api/runs/{runId}", { params: { path: { runId } } })).catch(asError);
    if (this.asking !== mine) return;
    this.asking = undefined;
    if (!(found instanceof ApiError)) this.take(found);
    else if (found.status === 404) {
      this.reset(undefined);
      say(t("editor.runGone", { run: runId }), "bad");
    } // another failure is that of the connection, after which it is asked for again
    this.applyPending();
  }

  private take(run: Schemas["Run"]): void {
    this.status.value = run.status;
    this.error.value = run.error ?? undefined;
    this.outputs.value = run.outputs ?? {};
    for (const [id, node] of Object.entries(run.nodes ?? {})) {
      const took = node.started != null && node.finished != null ? (node.finished - node.started) * 1000 : undefined;
      this.nodes.set(id, {
        status: node.status,
        took,
        cached: node.cached,
        bypassed: node.bypassed,
        given: node.given,
        iterations: node.iterations ?? undefined,
        remote: node.remote ?? undefined,
        stream: node.status === "running" ? this.nodes.get(id)?.stream : undefined,
        output: node.output,
        error: node.error ?? undefined,
      });
    }
  }

  /** Say in what streams that a part of it is missing, and ask for the rest. */
  private missed(): void {
    this.applyPending();
    const hole = `\n[${t("editor.missed")}]\n`;
    for (const key of Object.keys(this.streams)) this.streams[key] += hole;
    for (const [id, node] of this.nodes)
      Object.keys(node.stream ?? {}).forEach((key) => this.append(id, key, { type: "text_chunk", content: hole }));
    void this.refresh();
  }

  private onMessage(message: Message): void {
    if (this.status.value === "queued" && this.runId.value === undefined) {
      this.early.push(message); // the run may be through before its id has arrived
      return;
    }
    if (runOf(message) !== this.runId.value || this.runId.value === undefined) {
      if (message.type === "EXECUTION_STATUS_UPDATE")
        void this.look(String(message.payload.promptId), String(message.payload.status));
      return;
    }
    // Tokens come faster than a page is drawn: what came since the last picture is applied with the next one.
    this.pending.push(message);
    if (this.pending.length === 1) this.frame = requestAnimationFrame(() => this.applyPending());
    if (document.hidden) this.applyPending();
  }

  private applyPending(): void {
    if (this.asking !== undefined) return;
    const messages = this.pending;
    this.pending = [];
    messages.forEach((message) => this.apply(message));
  }

  private apply({ type, payload }: Message): void {
    const id = String(payload.nodeId ?? payload.sourceNodeId ?? "");
    switch (type) {
      case "EXECUTION_STATUS_UPDATE":
        this.status.value = payload.status as NodeStatus;
        this.error.value = payload.errorInfo as Schemas["ErrorInfo"] | undefined;
        if (!this.isActive.value) void this.refresh();
        break;
      case "NODE_EXECUTING":
        this.nodes.set(id, { status: "running", began: performance.now() });
        break;
      case "NODE_PROGRESS":
        this.patch(id, { progress: payload as unknown as NodeRun["progress"] });
        break;
      case "NODE_COMPLETE":
        if (id === INTERFACE) this.outputs.value = payload.output as Record<string, unknown>;
        else this.end(id, { ...endOf(payload), output: payload.output as NodeRun["output"] });
        break;
      case "NODE_CACHED":
        for (const one of payload.nodeIds as string[]) this.patch(one, { status: "complete", cached: true });
        break;
      case "NODE_BYPASSED":
        this.end(id, { status: "complete", bypassed: true });
        break;
      case "NODE_ERROR":
        this.end(id, { status: "error", error: payload.errorDetails as NodeRun["error"], remote: remoteOf(payload) });
        break;
      case "NODE_YIELD":
        this.append(id, String(payload.outputKey), payload.yieldedContent);
        break;
      case "AGENT_TRACE":
        this.trace.value = [...this.trace.value, payload as unknown as Schemas["AgentTrace"]].slice(-MOST_STEPS);
        break;
      case "WORKFLOW_INTERFACE_YIELD": {
        const key = String(payload.interfaceOutputKey);
        this.streams[key] = joined(this.streams[key], payload.yieldedContent);
        break;
      }
    }
  }

  private patch(id: string, change: Partial<NodeRun>): void {
    this.nodes.set(id, { status: "running", ...this.nodes.get(id), ...change });
  }

  private end(id: string, change: Partial<NodeRun>): void {
    const began = this.nodes.get(id)?.began;
    this.patch(id, { ...change, took: began === undefined ? undefined : performance.now() - began });
  }

  private append(id: string, key: string, content: unknown): void {
    const stream = this.nodes.get(id)?.stream ?? {};
    this.patch(id, { stream: { ...stream, [key]: joined(stream[key], content) } });
  }
}

const endOf = (payload: Message["payload"]) => ({
  status: "complete" as const,
  cached: !!payload.cached,
  given: !!payload.given,
  remote: remoteOf(payload),
});
/** The run that a message is about: steps of agent nodes name it as that of an agent. */
const runOf = ({ payload }: Message) => payload.promptId ?? payload.agentRunId;
const remoteOf = (payload: Message["payload"]) => payload.remote as NodeRun["remote"];

/** A document in the form of a request: what is drawn is run, saved or not. */
function promptOf(document: WorkflowDocument): Record<string, unknown> {
  return {
    name: document.name ?? "",
    nodes: document.nodes.map((node) => ({
      id: node.id,
      fullType: node.type,
      inputs: node.inputValues ?? {},
      configValues: node.configValues ?? {},
      inputConnectionOrders: node.inputConnectionOrders ?? {},
      bypassed: node.bypassed ?? false,
      displayName: node.displayName ?? null,
      parentNode: node.parentNode ?? null,
      policy: node.policy ?? null,
      pinnedOutputs: node.pinnedOutputs ?? {},
    })),
    edges: document.edges.map((edge) => ({
      id: edge.id,
      sourceNodeId: edge.source,
      sourceHandle: edge.sourceHandle,
      targetNodeId: edge.target,
      targetHandle: edge.targetHandle,
    })),
    interfaceInputs: document.interfaceInputs ?? {},
    interfaceOutputs: document.interfaceOutputs ?? {},
  };
}
