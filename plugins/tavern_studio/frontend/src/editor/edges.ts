import { loopAround, slotKey, type Ends, type WorkflowDocument } from "./document";
import { refusal, type Slots } from "./slots";

/** Say why an edge may not be, as the key of a message; undefined where it may. One with an unknown end may. */
export function edgeProblem(
  document: WorkflowDocument,
  ends: Ends,
  slotsOf: (node: string) => Slots,
): string | undefined {
  const [from, to] = [slotsOf(ends.source), slotsOf(ends.target)];
  const isFromInside = Object.hasOwn(from.innerOutputs, ends.sourceHandle);
  if (ends.source === ends.target && !isFromInside) return "editor.refused.itself";
  const inputs = { ...to.inputs, ...to.innerInputs };
  const output = { ...from.outputs, ...from.innerOutputs }[ends.sourceHandle];
  const input = inputs[slotKey(ends.targetHandle, inputs)];
  if (output === undefined || input === undefined) return undefined;
  const isIntoInside = Object.hasOwn(to.innerInputs, ends.targetHandle);
  const begin = isFromInside ? ends.source : loopAround(document, ends.source);
  const end = isIntoInside ? ends.target : loopAround(document, ends.target);
  if (begin !== end) {
    const around = [];
    for (let at = end; at !== undefined; at = loopAround(document, at)) around.push(at);
    if (begin !== undefined && !around.includes(begin)) return "editor.refused.out";
    if (isIntoInside || (around.includes(ends.source) && !isFromInside)) return "editor.refused.side";
    if (output.isStream) return "editor.refused.streamIn";
  }
  return refusal(output, input);
}
