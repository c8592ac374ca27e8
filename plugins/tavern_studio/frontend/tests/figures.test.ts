import { expect, test } from "vitest";
import { busiest, callsOf, gaugeOf, lineOf, rateOf, sumOf, trackOf } from "../src/settings/figures";

const figure = (name: string, value: number, labels: Record<string, string> = {}) => ({ name, value, labels }) as never;
const sample = (at: number, calls: number, seconds: number) => ({
  at,
  figures: [
    figure("tavern_hook_calls_total", calls, { plugin: "acme", hook: "a" }),
    figure("tavern_hook_calls_seconds_total", seconds, { plugin: "acme", hook: "a" }),
    figure("tavern_runs_total", 3, { status: "complete" }),
  ],
});

test("calls of a plugin are counted between samples, by the minute", () => {
  const rows = callsOf([sample(0, 10, 1), sample(30_000, 40, 1.5), sample(60_000, 40, 1.5)]);
  expect(rows).toEqual([{ name: "acme", calls: 30, milliseconds: 500, rates: [60, 0] }]);
});

test("a host that was started again counts from nothing", () => {
  expect(callsOf([sample(0, 500, 9), sample(60_000, 4, 0.1)])[0]).toMatchObject({
    calls: 4,
    milliseconds: 0,
    rates: [4],
  });
});

test("figures of a name are summed by their labels", () => {
  const figures = [
    figure("runs", 2, { status: "running" }),
    figure("runs", 5, { status: "queued" }),
    figure("other", 1),
  ];
  expect([sumOf(figures, "runs"), sumOf(figures, "runs", { status: "queued" }), sumOf(figures, "none")]).toEqual([
    7, 5, 0,
  ]);
});

test("a line goes from nothing to the highest value", () => {
  expect(lineOf([0, 5, 10])).toBe("0,23 50,12 100,1");
  expect(lineOf([0, 0])).toBe("0,23 100,23");
});

test("samples become series: gauges by their labels, counters of plugins summed, rates by the minute", () => {
  const at = (time: number, queued: number, seconds: number) => ({
    at: time,
    figures: [
      figure("tavern_active_runs", queued, { status: "queued" }),
      figure("tavern_active_runs", 1, { status: "running" }),
      figure("tavern_hooks_seconds_total", seconds, { plugin: "acme", hook: "a" }),
      figure("tavern_hooks_seconds_total", seconds, { plugin: "acme", hook: "b" }),
      figure("tavern_hooks_seconds_total", 0, { plugin: "quiet", hook: "b" }),
    ],
  });
  const track = trackOf([at(0, 2, 1), at(30_000, 0, 2), at(60_000, 3, 0.5)]);
  expect(gaugeOf(track, "tavern_active_runs", { status: "queued" })).toEqual([2, 0, 3]);
  expect(gaugeOf(track, "tavern_active_runs")).toEqual([3, 1, 4]);
  expect(gaugeOf(track, "never")).toEqual([undefined, undefined, undefined]);
  expect(rateOf(track, "tavern_hooks_seconds_total", { plugin: "acme" })).toEqual([undefined, 4, 2]);
  expect(busiest(track, 5).map(({ plugin, values }) => [plugin, values])).toEqual([["acme", [undefined, 4000, 2000]]]);
});
