import { expect, test } from "vitest";
import { folded, stepsOf } from "../src/chat/timeline";

const entry = (kind: string, step: number, at: number, data: Record<string, unknown> = {}) =>
  ({ kind, step, at, data, text: "" }) as never;

test("a trace is put together by steps with calls, times and tokens", () => {
  const steps = stepsOf([
    entry("started", 0, 0),
    entry("thinking", 1, 0.1),
    entry("tool_call", 1, 1.1, { toolId: "clock", promptTokens: 40, completionTokens: 6 }),
    entry("observation", 1, 3.1),
    entry("thinking", 2, 3.1),
    entry("reply", 2, 4.1, { promptTokens: 60, completionTokens: null }),
  ]);
  expect(steps).toEqual([
    { number: 1, at: 0.1, seconds: 3, calls: ["clock"], input: 40, output: 6 },
    { number: 2, at: 3.1, seconds: expect.closeTo(1), calls: [], input: 60, end: "reply" },
  ]);
});

test("a long list shows its two ends and how much is between", () => {
  const list = Array.from({ length: 30 }, (_, index) => index);
  expect(folded(list.slice(0, 12))).toEqual({ first: list.slice(0, 12), hidden: 0, last: [] });
  expect(folded(list)).toEqual({ first: [0, 1, 2, 3], hidden: 18, last: [22, 23, 24, 25, 26, 27, 28, 29] });
});
