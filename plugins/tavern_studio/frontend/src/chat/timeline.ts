import type { Schemas } from "../api/client";

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

/** Return what a long list shows: all of a short one, else its beginning and its end, and how many stand between. */
export function folded<T>(list: T[], most = 12): { first: T[]; hidden: number; last: T[] } {
  if (list.length <= most) return { first: list, hidden: 0, last: [] };
  const first = Math.floor(most / 3);
  return { first: list.slice(0, first), hidden: list.length - most, last: list.slice(first - most) };
}
