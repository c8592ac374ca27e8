import type { Schemas } from "../api/client";
import { t } from "../i18n";
import type { Span, SpanKind, TimelineRow } from "../kit/charts/timeline";

type Run = Schemas["Run"];
type Task = Pick<
  Schemas["ToolTask"],
  "id" | "toolId" | "runId" | "approval" | "createdAt" | "startedAt" | "finishedAt"
>;

const seconds = (from: string, to: string | null | undefined, now: number) =>
  ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000;
/** Shorter waits, in parts of the whole, are not worth a row. */
const LEAST_WAIT = 0.02;

/**
 * Return a run as rows, in seconds since it was asked for: how long it waited for its turn, each node in the order in which they
 * began, and the calls that waited for a person. What has not ended lasts until `now`, in milliseconds.
 */
export function rowsOfRun(run: Run, tasks: readonly Task[], now: number): TimelineRow[] {
  const wait = Math.max(0, seconds(run.submittedAt, run.startedAt ?? run.finishedAt, now));
  const rows: TimelineRow[] = [];
  const end = run.startedAt ? wait + seconds(run.startedAt, run.finishedAt, now) : wait;
  if (wait >= LEAST_WAIT * end || !run.startedAt)
    rows.push({ id: "queue", name: t("kit.charts.kinds.queue"), spans: [{ kind: "queue", from: 0, to: wait }] });
  const nodes = Object.entries(run.nodes ?? {}).sort(
    ([, a], [, b]) => (a.started ?? Infinity) - (b.started ?? Infinity),
  );
  for (const [id, node] of nodes) {
    const from = wait + (node.started ?? 0);
    const to = node.finished != null ? wait + node.finished : end;
    const spans: Span[] = node.started == null ? [] : [{ kind: kindOf(node), from, to: Math.max(from, to) }];
    rows.push({ id: `node ${id}`, name: id, target: id, spans });
  }
  for (const task of tasks.filter((one) => one.runId === run.id && one.approval)) {
    const from = Math.max(0, seconds(run.submittedAt, task.createdAt, now));
    const to = seconds(run.submittedAt, task.startedAt ?? task.finishedAt, now);
    rows.push({ id: task.id, name: task.toolId, spans: [{ kind: "approval", from, to: Math.max(from, to) }] });
  }
  return rows;
}

function kindOf(node: NonNullable<Run["nodes"]>[string]): SpanKind {
  if (node.status === "error") return "failed";
  return node.cached || node.given ? "cached" : "run";
}
