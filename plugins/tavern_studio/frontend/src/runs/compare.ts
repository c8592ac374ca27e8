import type { Schemas } from "../api/client";
import { canonical } from "../editor/comparison";

type Run = Schemas["Run"];
type NodeOfRun = NonNullable<Run["nodes"]>[string];

/** A node in two runs of a workflow. */
export interface Row {
  name: string;
  here?: NodeOfRun;
  there?: NodeOfRun;
  result: "same" | "different" | "onlyHere" | "onlyThere";
}

/** Put two runs side by side, the nodes in the order in which they began. */
export function compareRuns(here: Run, there: Run): Row[] {
  const names = new Set([...Object.keys(here.nodes ?? {}), ...Object.keys(there.nodes ?? {})]);
  const rows = [...names].map((name) => rowOf(name, here.nodes?.[name], there.nodes?.[name]));
  return rows.sort((a, b) => beganOf(a) - beganOf(b));
}

function rowOf(name: string, here?: NodeOfRun, there?: NodeOfRun): Row {
  if (there === undefined) return { name, here, result: "onlyHere" };
  if (here === undefined) return { name, there, result: "onlyThere" };
  const isSame = here.status === there.status && canonical(here.output) === canonical(there.output);
  return { name, here, there, result: isSame ? "same" : "different" };
}

const beganOf = ({ here, there }: Row) => here?.started ?? there?.started ?? Number.MAX_VALUE;

/** Milliseconds that a node took; none where it did not run to its end. */
export function tookOf(node?: NodeOfRun): number | undefined {
  return node?.started != null && node.finished != null ? (node.finished - node.started) * 1000 : undefined;
}
