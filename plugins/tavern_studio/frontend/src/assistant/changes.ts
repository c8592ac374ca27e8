import type { Schemas } from "../api/client";

type Change = Schemas["PatchChange"];

/** Edges of a kind as one line, everything else as a line each. */
export interface ChangeLine {
  kind: Change["kind"];
  what: Change["what"];
  id: string;
  n: number;
}

/** Put changes together as people read them: nodes first, edges counted. */
export function linesOf(changes: Change[]): ChangeLine[] {
  const lines: ChangeLine[] = changes
    .filter((one) => one.what !== "edge")
    .map(({ kind, what, id }) => ({ kind, what, id, n: 1 }));
  for (const kind of ["added", "changed", "removed"] as const) {
    const n = changes.filter((one) => one.what === "edge" && one.kind === kind).length;
    if (n > 0) lines.push({ kind, what: "edge", id: "", n });
  }
  return lines;
}
