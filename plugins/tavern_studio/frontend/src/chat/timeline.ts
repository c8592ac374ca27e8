import type { Schemas } from "../api/client";
import type { Span, TimelineRow } from "../kit/charts/timeline";

type Trace = Schemas["AgentTrace"];

/** A step of an agent's work: one answer of its model, and what it called. Times are seconds since the run began. */
export interface Step {
  number: number;
  at: number;
  seconds: number;
  calls: string[];
  /** Tokens of the answer, where its model counts them. */
  input?: number;
  output?: number;
  /** How it ended, where it did not end with calls: `reply`, `limit`, `error`, `interrupted`. */
  end?: string;
}

const ENDS = new Set(["reply", "limit", "error", "interrupted"]);

/** Put a trace together by its steps. The last one lasts until its last entry. */
export function stepsOf(trace: Trace[]): Step[] {
  const steps: Step[] = [];
  for (const one of trace) {
    let step = steps.at(-1);
    if (one.kind === "thinking") {
      if (step) step.seconds = (one.at ?? 0) - step.at;
      step = { number: one.step, at: one.at ?? 0, seconds: 0, calls: [] };
      steps.push(step);
    }
    if (step === undefined) continue; // what comes before the first step belongs to none
    const data = (one.data ?? {}) as Record<string, unknown>;
    step.seconds = Math.max(step.seconds, (one.at ?? 0) - step.at);
    if (one.kind === "tool_call") step.calls.push(String(data.toolId ?? ""));
    if (ENDS.has(one.kind)) step.end = one.kind;
    if (typeof data.promptTokens === "number") step.input = data.promptTokens;
    if (typeof data.completionTokens === "number") step.output = data.completionTokens;
  }
  return steps;
}

/** Return a trace as rows: each answer of the model, and each call with the time that it waited for a person. */
export function rowsOfTrace(trace: Trace[], model: (step: number) => string): TimelineRow[] {
  const rows: TimelineRow[] = [];
  let [thinking, open]: [Span | undefined, Open[]] = [undefined, []];
  const end = trace.at(-1)?.at ?? 0;
  const settle = (at: number, found: Open[]) => {
    for (const { row } of found) row.spans.at(-1)!.to = at;
    open = open.filter((one) => !found.includes(one));
  };
  for (const one of trace) {
    const at = one.at ?? 0;
    const data = (one.data ?? {}) as Record<string, unknown>;
    if (one.kind === "thinking") {
      settle(at, open);
      thinking = { kind: "model", from: at, to: end };
      rows.push({ id: `model ${one.step} ${rows.length}`, name: model(one.step), spans: [thinking] });
    } else if (thinking && one.kind !== "fragment" && one.kind !== "thought") {
      thinking.to = at;
      if (one.kind === "error") thinking.kind = "failed";
      thinking = undefined;
    }
    if (one.kind === "tool_call") {
      const row: TimelineRow = {
        id: `call ${rows.length}`,
        name: String(data.toolId ?? ""),
        spans: [{ kind: "tool", from: at, to: end }],
      };
      rows.push(row);
      open.push({ row, tool: row.name });
    }
    const mine = open.filter((call) => data.toolId === undefined || call.tool === data.toolId);
    if (one.kind === "awaiting_approval") for (const { row } of mine.slice(0, 1)) split(row, "approval", at, end);
    if (one.kind === "tool_running")
      for (const { row } of mine.slice(0, 1)) if (row.spans.at(-1)!.kind === "approval") split(row, "tool", at, end);
    if (one.kind === "tool_output") settle(at, mine.slice(0, 1));
    if (one.kind === "observation") settle(at, data.toolId === undefined ? open : mine.slice(0, 1));
  }
  return rows;
}

interface Open {
  row: TimelineRow;
  tool: string;
}

/** End the last bar of a row, and begin another one. */
function split(row: TimelineRow, kind: Span["kind"], at: number, end: number): void {
  row.spans.at(-1)!.to = at;
  row.spans.push({ kind, from: at, to: end });
}
