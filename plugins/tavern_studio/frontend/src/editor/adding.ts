import { t } from "../i18n";
import {
  addNode,
  connect,
  cornerOf,
  freeId,
  GROUP_INPUT,
  GROUP_OUTPUT,
  nodeOf,
  type Slot,
  type WorkflowDocument,
  type WorkflowNode,
} from "./document";
import { edgeProblem } from "./edges";
import { useGestures } from "./gestures";
import { useLibrary } from "./library";
import { fullType, slotsInMode, type NodeDefinition } from "./nodetypes";
import type { PickOptions } from "./panels/picking";
import type { Session } from "./session";
import { modeOf, refusal } from "./slots";
import { enclose, zoneOf } from "./zones";

const GRID = 10;
/** The size of a node that was not drawn yet, about. */
const SIZE = { width: 220, height: 140 };

/** Return the first slot of a type that fits what an edge was drawn from, with its key. */
export function fitting(definition: NodeDefinition, end: Slot, isSource: boolean): string | undefined {
  const { inputs, outputs } = slotsInMode(definition, modeOf({}, definition));
  const slots = Object.entries(isSource ? inputs : outputs);
  const fits = slots.filter(([, slot]) => (isSource ? refusal(end, slot) : refusal(slot, end)) === undefined);
  const exact = fits.find(([, slot]) => slot.dataFlowType === end.dataFlowType);
  return (exact ?? fits[0])?.[0];
}

/** Add a node of a type, connected with what it was asked for; select it. */
export function addOfType(session: Session, definition: NodeDefinition, options: PickOptions): void {
  const { inputSlot, outputSlot } = useGestures(session);
  const type = fullType(definition);
  const id = freeId(session.index.value.nodes, definition.type);
  const near = options.place ?? placeFor(session.document.value);
  const position = { x: Math.round(near.x / GRID) * GRID, y: Math.round(near.y / GRID) * GRID };
  const parentNode =
    options.place && type !== GROUP_INPUT && type !== GROUP_OUTPUT ? zoneOf(session.document.value, position) : null;
  const corner = cornerOf(session.document.value, parentNode);
  const node: WorkflowNode = {
    id,
    type,
    position: { x: position.x - corner.x, y: position.y - corner.y },
    ...(parentNode && { parentNode }),
  };
  const from = options.from;
  session.change(t("editor.add"), (document) => {
    const added = addNode(document, node);
    const next = parentNode ? enclose(added, parentNode, () => SIZE) : added;
    if (from === undefined) return next;
    const isSource = from.handleType === "source";
    const end = isSource ? outputSlot(from.nodeId, from.handleId) : inputSlot(from.nodeId, from.handleId);
    const key = end && fitting(definition, end, isSource);
    if (key === undefined) return next;
    const [there, here] = [
      { node: from.nodeId, handle: from.handleId },
      { node: id, handle: key },
    ];
    const [source, target] = isSource ? [there, here] : [here, there];
    const ends = { source: source.node, sourceHandle: source.handle, target: target.node, targetHandle: target.handle };
    const slotsOf = (of: string) => session.slotsIn(next, nodeOf(next, of)!);
    if (edgeProblem(next, ends, slotsOf) !== undefined) return next;
    const { inputs, innerInputs } = slotsOf(ends.target);
    return connect(next, ends, { ...inputs, ...innerInputs });
  });
  if (!session.index.value.nodes.has(id)) return; // the workflow was not read yet
  useLibrary().used(type);
  session.selected.value = new Set([id]);
}

/** Right of what was selected last, or of everything. */
function placeFor(document: WorkflowDocument): { x: number; y: number } {
  const last = document.nodes.at(-1);
  return last ? { x: last.position.x + 40, y: last.position.y + 160 } : { x: 0, y: 0 };
}
