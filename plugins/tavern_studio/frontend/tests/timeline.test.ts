import { expect, test } from "vitest";
import { rowsOfTrace, stepsOf } from "../src/chat/timeline";
import { folded, kindsOf, tookOf, totalOf } from "../src/kit/charts/timeline";
import { rowsOfRun } from "../src/runs/timeline";

const entry = (kind: string, step: number, at: number, data: Record<string, unknown> = {}) =>
  ({ kind, step, at, data, text: "" }) as never;
const TRACE = [
  entry("started", 0, 0),
  entry("thinking", 1, 0.1),
  entry("tool_call", 1, 1.1, { toolId: "clock", promptTokens: 40, completionTokens: 6 }),
  entry("awaiting_approval", 1, 1.2, { toolId: "clock" }),
  entry("tool_running", 1, 2.2, { toolId: "clock" }),
  entry("observation", 1, 3.1),
  entry("thinking", 2, 3.1),
  entry("reply", 2, 4.1, { promptTokens: 60, completionTokens: null }),
];

test("a trace is put together by steps with calls, times and tokens", () => {
  expect(stepsOf(TRACE)).toEqual([
    { number: 1, at: 0.1, seconds: 3, calls: ["clock"], input: 40, output: 6 },
    { number: 2, at: 3.1, seconds: expect.closeTo(1), calls: [], input: 60, end: "reply" },
  ]);
});

test("a trace is rows of answers and calls, with the time that a call waited for a person", () => {
  const rows = rowsOfTrace(TRACE, (step) => `answer ${step}`);
  expect(rows.map((row) => row.name)).toEqual(["answer 1", "clock", "answer 2"]);
  expect(rows[0]!.spans).toEqual([{ kind: "model", from: 0.1, to: 1.1 }]);
  expect(rows[1]!.spans).toEqual([
    { kind: "tool", from: 1.1, to: 1.2 },
    { kind: "approval", from: 1.2, to: 2.2 },
    { kind: "tool", from: 2.2, to: 3.1 },
  ]);
  expect(totalOf(rows)).toBe(4.1);
  expect(kindsOf(rows)).toEqual(["model", "tool", "approval"]);
  expect(tookOf(rows[1]!)).toBeCloseTo(2);
});

const at = (second: number) => new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString();
const node = (started: number | null, finished: number | null, more: object = {}) => ({
  status: "complete",
  started,
  finished,
  ...more,
});

test("a run is rows in time since it was asked for: its turn, its nodes, and calls that waited for a person", () => {
  const run = {
    id: "r1",
    submittedAt: at(0),
    startedAt: at(2),
    finishedAt: null,
    nodes: {
      late: node(1, null, { status: "running" }),
      early: node(0, 0.5, { cached: true }),
      broken: node(0.5, 0.75, { status: "error" }),
      never: node(null, null, { status: "queued" }),
    },
  };
  const task = {
    id: "t1",
    toolId: "mail",
    runId: "r1",
    approval: {},
    createdAt: at(3),
    startedAt: null,
    finishedAt: null,
  };
  const rows = rowsOfRun(run as never, [task, { ...task, id: "t2", runId: "r2" }] as never, Date.parse(at(6)));
  expect(rows.map(({ name, spans }) => [name, ...spans.map((one) => [one.kind, one.from, one.to])])).toEqual([
    [expect.any(String), ["queue", 0, 2]],
    ["early", ["cached", 2, 2.5]],
    ["broken", ["failed", 2.5, 2.75]],
    ["late", ["run", 3, 6]],
    ["never"],
    ["mail", ["approval", 3, 6]],
  ]);
  expect(rows[1]!.target).toBe("early");
});

test("a long list shows its two ends and how much is between", () => {
  const list = Array.from({ length: 30 }, (_, index) => index);
  expect(folded(list.slice(0, 12))).toEqual({ first: list.slice(0, 12), hidden: 0, last: [] });
  expect(folded(list)).toEqual({ first: [0, 1, 2, 3], hidden: 18, last: [22, 23, 24, 25, 26, 27, 28, 29] });
});
