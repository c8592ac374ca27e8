import type { Schemas } from "../api/client";

type Figure = Schemas["Figure"];

/** What the host said of itself at a moment. */
export interface Sample {
  /** Milliseconds. */
  at: number;
  figures: Figure[];
}

interface PluginCalls {
  name: string;
  calls: number;
  milliseconds: number;
  /** Calls a minute between one sample and the next. */
  rates: number[];
}

/** Return the sum of the figures of a name, of all labels or of those that are given. */
export function sumOf(figures: Figure[], name: string, labels: Record<string, string> = {}): number {
  return figures
    .filter((one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels?.[key] === value))
    .reduce((total, one) => total + one.value, 0);
}

/** Return what each plugin was called for since the first sample, and how the calls came; the busiest first. */
export function callsOf(samples: Sample[]): PluginCalls[] {
  const totals = samples.map(({ figures }) => totalsOf(figures));
  const names = [...new Set(totals.flatMap((one) => [...one.keys()]))];
  const rows = names.map((name) => {
    const known = totals.map((one) => one.get(name) ?? { calls: 0, milliseconds: 0 });
    const steps = known.slice(1).map((now, index) => ({
      // A host that was started again counts from nothing.
      calls: now.calls >= known[index]!.calls ? now.calls - known[index]!.calls : now.calls,
      milliseconds: Math.max(0, now.milliseconds - known[index]!.milliseconds),
      minutes: Math.max(1, samples[index + 1]!.at - samples[index]!.at) / 60_000,
    }));
    return {
      name,
      calls: steps.reduce((sum, one) => sum + one.calls, 0),
      milliseconds: steps.reduce((sum, one) => sum + one.milliseconds, 0),
      rates: steps.map((one) => one.calls / one.minutes),
    };
  });
  return rows.sort((a, b) => b.milliseconds - a.milliseconds || b.calls - a.calls || a.name.localeCompare(b.name));
}

function totalsOf(figures: Figure[]): Map<string, { calls: number; milliseconds: number }> {
  const found = new Map<string, { calls: number; milliseconds: number }>();
  for (const { name, labels, value } of figures) {
    const plugin = labels?.plugin;
    if (!plugin || !name.endsWith("_total")) continue;
    const row = found.get(plugin) ?? { calls: 0, milliseconds: 0 };
    if (name.endsWith("_seconds_total")) row.milliseconds += value * 1000;
    else row.calls += value;
    found.set(plugin, row);
  }
  return found;
}

/** Return the points of a line through values, for a picture of 100 by 24, from nothing to the highest value. */
export function lineOf(values: number[]): string {
  const top = Math.max(...values, 1e-9);
  const last = Math.max(1, values.length - 1);
  return values.map((value, at) => `${round((100 * at) / last)},${round(23 - (22 * value) / top)}`).join(" ");
}

const round = (value: number) => Math.round(value * 10) / 10;
