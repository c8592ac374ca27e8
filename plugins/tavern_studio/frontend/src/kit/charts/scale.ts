import { t } from "../../i18n";
import { duration } from "../time";

/** What the numbers of an axis are. */
export type Unit = "count" | "perMinute" | "bytes" | "ms";

/** An axis: its ends, and where numbers stand at it. */
export interface Scale {
  least: number;
  most: number;
  ticks: number[];
}

/** The steps that people count in: 1, 2 or 5 times a power of ten; of bytes powers of 1,024, and halves and quarters of them. */
function niceStep(span: number, count: number, unit: Unit): number {
  const wanted = span / count;
  if (unit === "bytes") {
    const power = 1024 ** Math.max(0, Math.floor(Math.log(wanted) / Math.log(1024)));
    return power * 2 ** Math.max(0, Math.ceil(Math.log2(wanted / power)));
  }
  const power = 10 ** Math.floor(Math.log10(wanted));
  return ([1, 2, 5].find((one) => one * power >= wanted) ?? 10) * power;
}

/** The least and the greatest of some numbers, however many. */
export function rangeOf(values: Iterable<number | undefined>): { least: number; most: number } {
  let [least, most] = [Infinity, -Infinity];
  for (const one of values) {
    if (one === undefined || !Number.isFinite(one)) continue;
    [least, most] = [Math.min(least, one), Math.max(most, one)];
  }
  return least > most ? { least: 0, most: 0 } : { least, most };
}

/** An axis for numbers of a unit, from nothing to above the greatest. */
export function scaleOf(values: Iterable<number | undefined>, unit: Unit, count = 4): Scale {
  const top = rangeOf(values).most;
  let step = niceStep(top > 0 ? top : count, count, unit);
  if (unit === "count") step = Math.max(1, step);
  const most = Math.max(step, Math.ceil(top / step - 1e-9) * step);
  const ticks = Array.from({ length: Math.round(most / step) + 1 }, (_, at) => at * step);
  return { least: 0, most, ticks };
}

const MOMENTS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

/** Where times stand at an axis from one moment to another, in milliseconds: whole minutes, quarters, hours of the clock. */
export function timeTicks(from: number, to: number, count = 5): number[] {
  const step = 1000 * (MOMENTS.find((one) => (to - from) / (one * 1000) <= count) ?? 86_400);
  const shift = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
  return ticks;
}

/** Where durations stand at an axis that begins with nothing, in milliseconds. */
export function durationTicks(total: number, count = 5): number[] {
  const step =
    total < 5000
      ? niceStep(total, count, "count")
      : 1000 * (MOMENTS.find((one) => total / (one * 1000) <= count) ?? 86_400);
  return Array.from({ length: Math.floor(total / step) + 1 }, (_, at) => at * step);
}

/** Return a number with its unit, as people read it. */
export function shown(value: number | undefined, unit: Unit): string {
  if (value === undefined) return "–";
  if (unit === "ms") return value < 10 && value > 0 ? `${value.toFixed(1)} ms` : duration(value);
  if (unit === "bytes") {
    const power = Math.min(3, Math.max(0, Math.floor(Math.log(Math.max(1, value)) / Math.log(1024))));
    const scaled = value / 1024 ** power;
    return `${scaled < 10 && power > 0 ? scaled.toFixed(1) : Math.round(scaled)} ${["B", "KiB", "MiB", "GiB"][power]}`;
  }
  const number = (value >= 100 ? Math.round(value) : Number(value.toPrecision(3))).toLocaleString();
  return unit === "perMinute" ? t("kit.charts.perMinute", { n: number }) : number;
}

/** Return points of many numbers as the least and the greatest of each part, which look the same. */
export function thinned(numbers: readonly number[], most: number): { index: number; value: number }[] {
  if (numbers.length <= most) return numbers.map((value, index) => ({ index, value }));
  const part = (2 * numbers.length) / most;
  return Array.from({ length: most / 2 }, (_, at) => {
    const from = Math.floor(at * part);
    const { least, most: top } = rangeOf(numbers.slice(from, Math.floor((at + 1) * part)));
    return [
      { index: from, value: least },
      { index: from, value: top },
    ];
  }).flat();
}

/** Return runs of places that have a value: a line is broken where nothing is known. */
export function unbroken(values: readonly (number | undefined)[]): number[][] {
  const found: number[][] = [];
  values.forEach((value, at) => {
    if (value === undefined) return;
    if (at > 0 && values[at - 1] !== undefined) found.at(-1)!.push(at);
    else found.push([at]);
  });
  return found;
}

/** The place whose moment is nearest to another one. */
export function nearestPlace(times: readonly number[], moment: number): number {
  let best = 0;
  times.forEach((time, at) => {
    if (Math.abs(time - moment) < Math.abs(times[best]! - moment)) best = at;
  });
  return best;
}
