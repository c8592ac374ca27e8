/** What a bar of a timeline says: waiting for a turn or a person, work, an answer of a model, a tool, an earlier result, a failure. */
export type SpanKind = "queue" | "approval" | "run" | "model" | "tool" | "cached" | "failed";

/** Something that took from one moment to another; in seconds since the timeline began. */
export interface Span {
  kind: SpanKind;
  from: number;
  to: number;
}

/** A row of a timeline: what it is of, and when. One with a `target` can be chosen. */
export interface TimelineRow {
  id: string;
  name: string;
  /** More about it, such as its tokens. */
  about?: string;
  target?: string;
  spans: Span[];
}

/** How long all of it took, in seconds. */
export const totalOf = (rows: readonly TimelineRow[]): number =>
  Math.max(0.001, ...rows.flatMap((row) => row.spans.map((span) => span.to)));

/** The kinds that stand in some rows, in the order of their first bars. */
export const kindsOf = (rows: readonly TimelineRow[]): SpanKind[] => [
  ...new Set(rows.flatMap((row) => row.spans.map((span) => span.kind))),
];

/** The seconds that a row took, all bars together. */
export const tookOf = (row: TimelineRow): number => row.spans.reduce((sum, { from, to }) => sum + to - from, 0);

/** Return what a long list shows: all of a short one, else its beginning and its end, and how many stand between. */
export function folded<T>(list: T[], most = 12): { first: T[]; hidden: number; last: T[] } {
  if (list.length <= most) return { first: list, hidden: 0, last: [] };
  const first = Math.floor(most / 3);
  return { first: list.slice(0, first), hidden: list.length - most, last: list.slice(first - most) };
}
