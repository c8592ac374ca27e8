import { Handle, Position } from "@vue-flow/core";
import { h, type FunctionalComponent } from "vue";
import type { Slot } from "../document";
import { slotLook } from "../slots";
import "./handles.css";

interface Props {
  id: string;
  kind: "source" | "target";
  slot?: Slot;
  side?: "left" | "right";
  gone?: boolean;
}

/** A handle in the shape and colour of its slot's type; that of a slot which is gone takes no edge. */
const SlotHandle: FunctionalComponent<Props> = ({ id, kind, slot, side, gone }) => {
  const look = gone ? "gone" : slot ? slotLook(slot) : "any";
  const position = (side ?? (kind === "source" ? "right" : "left")) === "right" ? Position.Right : Position.Left;
  return h(Handle, { id, type: kind, position, connectable: !gone, class: ["slot", look, { stream: slot?.isStream }] });
};
SlotHandle.props = { id: null, kind: null, slot: null, side: null, gone: Boolean };

export default SlotHandle;
