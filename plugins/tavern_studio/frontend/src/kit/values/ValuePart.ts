import { h, type FunctionalComponent } from "vue";
import { rendererOf } from "../../registry/renderers";
import PlainValue from "./PlainValue.vue";

interface Props {
  value: unknown;
  /** The categories of the slot that it came from. */
  categories?: readonly string[] | null;
  /** Whether it stands on the canvas, where there is little room. */
  compact?: boolean;
}

/** A value as a plugin shows it, or else as the page does. */
const ValuePart: FunctionalComponent<Props> = ({ value, categories, compact }) =>
  h(rendererOf(value, categories ?? [], PlainValue), { value, compact: compact ?? false });
ValuePart.props = { value: null, categories: Array, compact: Boolean };

export default ValuePart;
