import { useVueFlow } from "@vue-flow/core";
import { computed, inject, watch } from "vue";
import { t } from "../../i18n";
import { nodeLook } from "../../registry/hooks";
import { placeOnNode } from "../controls/kinds";
import { useDefinitions } from "../definitions";
import { LOOP, nodeOf, orderOf, type Slot } from "../document";
import { lookOf } from "../looks";
import { modeChoice } from "../modes";
import { nameOf } from "../nodetypes";
import { mayPin } from "../pins";
import { SESSION, type Session } from "../session";
import type { Slots } from "../slots";

/** An input as it stands on a node: one that takes several edges has a handle for each of them, and one more. */
export interface InputRow {
  key: string;
  slot: Slot;
  handles: string[];
  isConnected: boolean;
  control: ReturnType<typeof placeOnNode>;
}

/** The inputs of a node as rows; `connected` are those that an edge leads to. */
export function inputRows(session: Session, id: string, slots: Slots["inputs"], connected: string[]): InputRow[] {
  return Object.entries(slots).map(([key, slot]) => {
    const count = slot.multi ? orderOf(session.shown.value, id, key, slots).length : Number(connected.includes(key));
    const handles = slot.multi ? Array.from({ length: count + 1 }, (_, index) => `${key}__${index}`) : [key];
    return { key, slot, handles, isConnected: count > 0, control: count > 0 ? "none" : placeOnNode(slot) };
  });
}

/** What the canvas shows of a node, however it is drawn. The canvas gives each id a component of its own. */
export function useShownNode(id: string) {
  const session = inject(SESSION)!;
  const definitions = useDefinitions();
  const node = computed(() => nodeOf(session.shown.value, id));
  const mark = computed(() => session.comparison.value?.nodes.get(id));
  const type = computed(() => node.value?.type ?? "");
  const definition = computed(() => definitions.byType.get(type.value));
  const isMissing = computed(() => definitions.resource.data.value !== undefined && definition.value === undefined);
  const title = computed(() => node.value?.displayName || nameOf(definition.value, type.value));
  const kind = computed(() => lookOf(definition.value));
  const slots = computed(() => session.slotsOf(id));
  const run = computed(() => session.running.nodes.get(id));
  const mode = computed(() => modeChoice(definition.value));
  const isPinned = computed(
    () => node.value?.pinnedOutputs !== undefined && mayPin(session.document.value, node.value),
  );
  const isDim = computed(
    () => session.isTracing.value && session.path.value.nodes.size > 0 && !session.path.value.nodes.has(id),
  );
  // What plugins make of it: their classes and badge.
  const look = computed(() =>
    nodeLook(() => ({
      id,
      type: type.value,
      title: title.value,
      values: node.value?.inputValues ?? {},
      status: run.value?.status,
    })),
  );
  const label = computed(() =>
    t("editor.nodeLabel", { name: title.value, state: run.value ? t(`editor.state.${run.value.status}`) : "" }),
  );
  const classes = computed(() => [
    run.value?.status,
    mark.value,
    look.value.classes,
    `hue-${kind.value.hue}`,
    {
      loop: type.value === LOOP,
      bypassed: node.value?.bypassed,
      pinned: isPinned.value,
      missing: isMissing.value,
      outdated: slots.value.gone,
      dim: isDim.value,
    },
  ]);

  // A text, so that a change elsewhere in the document does not render this node again.
  const connectedText = computed(() =>
    (session.index.value.into.get(id) ?? []).map((edge) => `${edge.targetHandle} ${edge.id}`).join("\n"),
  );
  const inputs = computed<InputRow[]>(() => {
    const lines = connectedText.value ? connectedText.value.split("\n").map((line) => line.split(" ")[0] ?? "") : [];
    return inputRows(session, id, slots.value.inputs, lines);
  });

  // A node may stay as large when its slots become others: the canvas would not see that its handles moved.
  const flow = useVueFlow();
  const handles = computed(() =>
    Object.values(slots.value)
      .flatMap((some) => Object.keys(some ?? {}))
      .join(" "),
  );
  watch(handles, () => flow.updateNodeInternals([id]), { flush: "post" });

  const seen = { session, node, mark, type, isMissing, definition, title, kind, slots, run };
  return { ...seen, mode, isPinned, look, label, classes, inputs };
}
