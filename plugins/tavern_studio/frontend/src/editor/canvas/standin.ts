import type { GraphNode } from "@vue-flow/core";
import type { Slots } from "../slots";
import type { InputRow } from "./shownnode";

/** Where the middle of a handle is, in pixels from the top of its node. */
export interface HandlePlace {
  id: string;
  kind: "source" | "target";
  top: number;
}

export interface Outline {
  width: number;
  height: number;
  handles: HandlePlace[];
}

const HEADER = 42;
/** The middle of a handle in its row. */
const MIDDLE = 14;
const ROW = 26;
const CONTROL = 34;
const [NARROW, WIDE] = [200, 290];

/** How large a node is about, and where its handles are, before it was ever drawn in full: rather larger than smaller. */
export function estimated(inputs: InputRow[], outputs: Slots["outputs"], hasMode: boolean): Outline {
  let top = HEADER + (hasMode ? CONTROL : 0);
  const handles: HandlePlace[] = [];
  for (const row of inputs) {
    for (const id of row.handles) {
      handles.push({ id, kind: "target", top: top + MIDDLE });
      top += row.control === "below" || row.control === "preview" ? ROW + CONTROL : ROW;
    }
  }
  for (const id of Object.keys(outputs)) {
    handles.push({ id, kind: "source", top: top + MIDDLE });
    top += ROW;
  }
  const isNarrow = inputs.every((row) => row.control === "none");
  return { width: isNarrow ? NARROW : WIDE, height: top + 4, handles };
}

/** What was measured of a node when it was drawn in full; nothing if it has other handles than then. */
export function measured(drawn: GraphNode | undefined, handles: readonly HandlePlace[]): Outline | undefined {
  const { width = 0, height = 0 } = drawn?.dimensions ?? {};
  const tops = new Map(
    (["source", "target"] as const).flatMap((kind) =>
      (drawn?.handleBounds[kind] ?? []).map((one) => [`${kind} ${one.id}`, one.y + one.height / 2] as const),
    ),
  );
  const places = handles.map((one) => ({ ...one, top: tops.get(`${one.kind} ${one.id}`) ?? NaN }));
  const isKnown = width > 0 && places.every(({ top }) => Number.isFinite(top));
  return isKnown ? { width, height, handles: places } : undefined;
}
