import { t } from "../i18n";
import {
  addNode,
  connect,
  cornerOf,
  freeId,
  GROUP_INPUT,
  GROUP_OUTPUT,
  type Slot,
  type WorkflowDocument,
  type WorkflowNode,
} from "./document";
import { useGestures } from "./gestures";
import { useLibrary } from "./library";
import { fullType, type NodeDefinition } from "./nodetypes";
import type { PickOptions } from "./panels/picking";
import type { Session } from "./session";
import { refusal } from "./slots";
import { enclose, zoneOf } from "./zones";

const GRID = 10;
/** The size of a node that was not drawn yet, about. */
const SIZE = { width: 220, height: 140 };

/** Return the first slot of a type that fits what an edge was drawn from, with its key. */
export function fitting(definition: NodeDefinition, end: Slot, isSource: boolean): string | undefined {
  const slots = Object.entries(isSource ? definition.inputs : definition.outputs);
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
    return isSource
      ? connect(
          next,
          { source: from.nodeId, sourceHandle: from.handleId, target: id, targetHandle: key },
          definition.inputs,
        )
      : connect(
          next,
          { source: id, sourceHandle: key, target: from.nodeId, targetHandle: from.handleId },
          session.slotsOf(from.nodeId).inputs,
        );
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
