import { Position, type GraphNode, type HandleElement } from "@vue-flow/core";
import type { WorkflowNode } from "../document";
import { modeChoice } from "../modes";
import type { Session } from "../session";
import type { Slots } from "../slots";
import { inputRows, type InputRow } from "./shownnode";

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
const BORDER = 1;
/** The width and height of a handle. */
const HANDLE = 12;

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
      (drawn?.handleBounds[kind] ?? []).map((one) => [`${kind} ${one.id}`, one.y + one.height / 2 - BORDER] as const),
    ),
  );
  const places = handles.map((one) => ({ ...one, top: tops.get(`${one.kind} ${one.id}`) ?? NaN }));
  const isKnown = width > 0 && places.every(({ top }) => Number.isFinite(top));
  return isKnown ? { width, height, handles: places } : undefined;
}

/** The outline of a node of the document, before anything of it is drawn. */
export function outlineOf(session: Session, node: WorkflowNode): Outline {
  const { inputs, outputs } = session.slotsOf(node.id);
  const connected = (session.index.value.into.get(node.id) ?? []).map((edge) => edge.targetHandle);
  const hasMode = modeChoice(session.definitions.byType.get(node.type)) !== undefined;
  return estimated(inputRows(session, node.id, inputs, connected), outputs, hasMode);
}

/** Handles as the canvas library notes them when it has measured a node. */
export function boundsOf(id: string, { width, handles }: Outline): Record<HandlePlace["kind"], HandleElement[]> {
  const bounds = { source: [] as HandleElement[], target: [] as HandleElement[] };
  for (const { id: handle, kind, top } of handles) {
    const middle = kind === "source" ? width - BORDER : BORDER;
    bounds[kind].push({
      id: handle,
      type: kind,
      nodeId: id,
      position: kind === "source" ? Position.Right : Position.Left,
      x: middle - HANDLE / 2,
      y: BORDER + top - HANDLE / 2,
      width: HANDLE,
      height: HANDLE,
    });
  }
  return bounds;
}

/** Whether an element on the canvas is a stand-in that is as its node was noted: then there is nothing to measure. */
export function isAsNoted(element: HTMLElement, node: GraphNode | undefined): boolean {
  if (node === undefined || !element.firstElementChild?.classList.contains("stand-in")) return false;
  const { dimensions, handleBounds } = node;
  const drawn = [...element.querySelectorAll<HTMLElement>(".vue-flow__handle")].map((one) => one.dataset.handleid);
  const noted = [...(handleBounds.target ?? []), ...(handleBounds.source ?? [])].map((one) => one.id);
  const { offsetWidth: width, offsetHeight: height } = element;
  return width === dimensions.width && height === dimensions.height && String(drawn) === String(noted);
}
