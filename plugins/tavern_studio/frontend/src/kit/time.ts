import { i18n, t } from "../i18n";

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

/** Return how long ago a moment was, in the language of the page; days for a month, then the date. */
export function timeAgo(moment: string | number | null | undefined): string {
  if (!moment) return "";
  const date = new Date(moment);
  const seconds = (date.getTime() - Date.now()) / 1000;
  const locale = i18n.global.locale.value;
  if (Math.abs(seconds) > 30 * 86_400) return date.toLocaleDateString(locale);
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  for (const [unit, size] of STEPS)
    if (Math.abs(seconds) >= size) return format.format(Math.round(seconds / size), unit);
  return format.format(0, "second");
}

/** Return a duration of some milliseconds as people read it: `12 ms`, `4.2 s`, `3 min`. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.round(milliseconds / 60_000)} min`;
}

/** Return what a promise gives; throw where that takes longer than some milliseconds. */
export async function within<T>(milliseconds: number, promise: Promise<T>): Promise<T> {
  let due: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    due = setTimeout(() => reject(new Error(t("kit.tooLong", { time: duration(milliseconds) }))), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(due);
  }
}
