import { defineAsyncComponent, h, type Component, type FunctionalComponent } from "vue";
import { rendererOf } from "../../registry/renderers";
import PlainValue from "./PlainValue.vue";
import { seenAs } from "./seen";

interface Props {
  value: unknown;
  /** The categories of the slot that it came from. */
  categories?: readonly string[] | null;
  /** Whether it stands on the canvas, where there is little room. */
  compact?: boolean;
}

const MarkdownText = defineAsyncComponent(() => import("../MarkdownText.vue"));
/** Categories of texts that are written in Markdown. */
const MARKDOWN = ["Markdown", "LlmOutput"];
const MarkdownValue: FunctionalComponent<{ value: unknown }> = ({ value }) => h(MarkdownText, { text: String(value) });
MarkdownValue.props = ["value", "compact"];

/** What the page itself shows a value with: text that is Markdown as that, where there is room for it. */
export function plainOf(value: unknown, categories: readonly string[], compact: boolean): Component {
  const isMarkdown = !compact && seenAs(value)?.kind === "text" && categories.some((one) => MARKDOWN.includes(one));
  return isMarkdown ? MarkdownValue : PlainValue;
}

/** A value as a plugin shows it, or else as the page does. */
const ValuePart: FunctionalComponent<Props> = ({ value, categories, compact }) =>
  h(rendererOf(value, categories ?? [], plainOf(value, categories ?? [], compact ?? false)), {
    value,
    compact: compact ?? false,
  });
ValuePart.props = { value: null, categories: Array, compact: Boolean };

export default ValuePart;
