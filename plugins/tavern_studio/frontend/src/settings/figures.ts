import type { Schemas } from "../api/client";

type Figure = Schemas["Figure"];

/** What the host said of itself at a moment. */
export interface Sample {
  /** Milliseconds. */
  at: number;
  figures: Figure[];
}

/** What figures were at some moments, in milliseconds. */
export interface Track {
  times: number[];
  series: { name: string; labels: Record<string, string>; values: (number | null)[] }[];
}

/** Put samples into the form in which the host gives what it has kept. */
export function trackOf(samples: readonly Sample[]): Track {
  const series = new Map<string, Track["series"][number]>();
  samples.forEach(({ figures }, at) => {
    for (const { name, labels, value } of figures) {
      const own: Record<string, string> = labels?.plugin ? { plugin: labels.plugin } : (labels ?? {});
      const key = JSON.stringify([name, own]);
      const one = series.get(key) ?? { name, labels: own, values: samples.map(() => null) };
      series.set(key, one);
      one.values[at] = (one.values[at] ?? 0) + value;
    }
  });
  return { times: samples.map(({ at }) => at), series: [...series.values()] };
}

type Values = (number | undefined)[];

/** Return a gauge over time, all series with these labels together. */
export function gaugeOf(
  { times, series }: Track,
  name: string,
  labels: Record<string, string> = {},
  factor = 1,
): Values {
  const mine = series.filter(
    (one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels[key] === value),
  );
  return times.map((_, at) => {
    const known = mine.map(({ values }) => values[at]).filter((one) => one != null);
    return known.length > 0 ? factor * known.reduce((sum, one) => sum + one, 0) : undefined;
  });
}

/** Return how fast a counter grew, by the minute; a host that was started again counts from nothing. */
export function rateOf(track: Track, name: string, labels: Record<string, string> = {}, factor = 1): Values {
  const counted = gaugeOf(track, name, labels, factor);
  return counted.map((now, at) => {
    if (at === 0 || now === undefined) return undefined;
    const before = counted[at - 1] ?? 0;
    const minutes = Math.max(1, track.times[at]! - track.times[at - 1]!) / 60_000;
    return (now >= before ? now - before : now) / minutes;
  });
}

/** Return the plugins that took most time, and how much of each minute, in milliseconds. */
export function busiest(track: Track, most: number): { plugin: string; values: Values }[] {
  const plugins = [
    ...new Set(track.series.map((one) => one.labels.plugin).filter((one) => one !== undefined && one !== "")),
  ];
  const rows = plugins.map((plugin) => {
    const parts = ["tavern_hooks_seconds_total", "tavern_nodes_seconds_total"].map((name) =>
      rateOf(track, name, { plugin: plugin! }, 1000),
    );
    const values = track.times.map((_, at) => {
      const known = parts.map((one) => one[at]).filter((one) => one !== undefined);
      return known.length > 0 ? known.reduce((sum, one) => sum + one, 0) : undefined;
    });
    return { plugin: plugin!, values, total: values.reduce<number>((sum, one) => sum + (one ?? 0), 0) };
  });
  return rows
    .filter((one) => one.total > 0)
    .sort((a, b) => b.total - a.total)
    .slice(0, most);
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
