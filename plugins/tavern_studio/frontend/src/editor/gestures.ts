import { t } from "../i18n";
import { connect, GROUP_INPUT, GROUP_OUTPUT, nodeOf, slotKey, type Ends, type Slot } from "./document";
import type { Session } from "./session";
import { NEW_SLOT } from "./slots";

/** What gestures on the canvas and the keyboard have in common. */
export function useGestures(session: Session) {
  function inputSlot(node: string, handle: string): Slot | undefined {
    const slots = session.slotsOf(node);
    return slots.inputs[slotKey(handle, slots.inputs)] ?? slots.innerInputs[handle];
  }

  function outputSlot(node: string, handle: string): Slot | undefined {
    const slots = session.slotsOf(node);
    return slots.outputs[handle] ?? slots.innerOutputs[handle];
  }

  /** Connect with the interface of the workflow: a slot like the one at the other end is made there. */
  function connectNew(ends: Ends): void {
    const side = ends.sourceHandle === NEW_SLOT ? "interfaceInputs" : "interfaceOutputs";
    const isInput = side === "interfaceInputs";
    const other = isInput ? inputSlot(ends.target, ends.targetHandle) : outputSlot(ends.source, ends.sourceHandle);
    const group = nodeOf(session.document.value, isInput ? ends.source : ends.target);
    if (other === undefined || group?.type !== (isInput ? GROUP_INPUT : GROUP_OUTPUT)) return;
    const wanted = (
      isInput ? slotKey(ends.targetHandle, session.slotsOf(ends.target).inputs) : ends.sourceHandle
    ).replace(/\W/g, "_");
    session.change(t("editor.newSlot"), (document) => {
      const taken = document[side] ?? {};
      let key = wanted;
      for (let number = 2; key in taken; number++) key = `${wanted}_${number}`;
      const { multi: _multi, required: _required, ...rest } = other;
      const slot: Slot = { ...rest, key, displayName: other.displayName ?? wanted };
      const next = { ...document, [side]: { ...taken, [key]: slot } };
      const done = isInput ? { ...ends, sourceHandle: key } : { ...ends, targetHandle: key };
      return connect(next, done, isInput ? session.slotsOf(ends.target).inputs : { [key]: slot });
    });
  }

  return { inputSlot, outputSlot, connectNew };
}
