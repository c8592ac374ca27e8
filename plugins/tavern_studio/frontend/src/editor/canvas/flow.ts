import type { Edge, GraphEdge, GraphNode, Node, VueFlowStore } from "@vue-flow/core";
import { computed, markRaw, nextTick, shallowReactive, shallowRef, watch, type ShallowRef } from "vue";
import { t } from "../../i18n";
import { onCanvas } from "../comments";
import { LOOP, type WorkflowComment, type WorkflowEdge, type WorkflowNode } from "../document";
import { linkNameOf, pointsOf } from "../links";
import type { Session } from "../session";
import { slotLook } from "../slots";
import { zoneSize, type Size } from "../zones";
import { DRAWN } from "./near";
import type { Box } from "./routing";
import { boundsOf, isAsNoted, outlineOf } from "./standin";

/** Nodes and edges are looked up in the document; the canvas would make an object of its own for each of them reactive. */
const NOTHING = markRaw({});
/** A command gives edges the focus: Tab leads from node to node. */
const FOCUSABLE = markRaw({ tabindex: -1 });

function zoneStyle(node: WorkflowNode) {
  const { width, height } = zoneSize(node);
  return { width: `${width}px`, height: `${height}px` };
}

/** The size of a node as it is drawn. */
export function sizeOf(flow: VueFlowStore, id: string): Size {
  const drawn = flow.findNode(id)?.dimensions;
  return { width: drawn?.width || 220, height: drawn?.height || 140 };
}

/** More nodes are not gone around: each edge is compared with each node. */
const MAX_BOXES = 1500;

/** Where nodes stand, known again once what was moved or measured has come to rest. */
export function useBoxes(flow: VueFlowStore): ShallowRef<readonly Box[]> {
  const boxes = shallowRef<readonly Box[]>([]);
  let frame = 0;
  function look(): void {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      if (flow.nodes.value.some((node) => node.dragging)) return; // they are looked at when they are let go
      const nodes = flow.nodes.value.filter((node) => node.type === "base" && node.zIndex !== -1);
      boxes.value = nodes.length > MAX_BOXES ? [] : nodes.map(boxOf);
    });
  }
  look();
  flow.onNodesChange((changes) => {
    if (changes.some((one) => one.type === "dimensions" || one.type === "remove")) look();
  });
  flow.onNodeDragStop(look);
  watch(() => flow.nodes.value.map((node) => node.position), look, { flush: "post" });
  return boxes;
}

function boxOf({ id, computedPosition: { x, y }, dimensions: { width, height } }: GraphNode): Box {
  return { id, x, y, width, height };
}

/** Show a session's document on the canvas: what is new, gone or another since the last picture is put there. */
export function useFlow(session: Session, flow: VueFlowStore): void {
  // For composables that nothing here uses; two reactive maps for each edge.
  flow.connectionLookup.value = markRaw(new Map());
  let shown = new Map<string, WorkflowNode>();
  // Sizes are the nodes' already when this is called: the library would look for each of them among all.
  flow.onNodesChange((changes) => {
    const others = changes.filter((one) => one.type !== "dimensions");
    if (others.length) flow.applyNodeChanges(others);
  });
  flow.onEdgesChange(flow.applyEdgeChanges);
  const measure = flow.updateNodeDimensions;
  Object.assign(flow, {
    updateNodeDimensions: (updates: { id: string; nodeElement: HTMLDivElement }[]) => {
      measure(updates.filter(({ id, nodeElement }) => !isAsNoted(nodeElement, flow.findNode(id))));
    },
  });
  // Edges are drawn once it is known where the handles of their nodes are; before, each would be drawn twice.
  let ready = session.shown.value.nodes.length
    ? new Promise<void>((done) => flow.onNodesInitialized(() => done()))
    : Promise.resolve();
  let looks = new Map<string, string>();
  const outdated = computed(() => new Set(session.outdated.value));
  const isLarge = () => session.shown.value.nodes.length > DRAWN;

  function nodeFor(node: WorkflowNode): Node & Partial<GraphNode> {
    const isLoop = node.type === LOOP;
    return {
      id: node.id,
      type: "base",
      position: { ...node.position },
      parentNode: node.parentNode ?? undefined,
      zIndex: isLoop ? -1 : undefined,
      style: isLoop ? zoneStyle(node) : undefined,
      selected: session.selected.value.has(node.id),
      ariaLabel: node.displayName ?? node.id,
      data: NOTHING,
      ...(isLarge() && !isLoop ? notedOf(node) : { handleBounds: shallowReactive({ source: [], target: [] }) }),
    };
  }

  /** What the library would note of a stand-in: each node would be drawn again once that is measured. */
  function notedOf(node: WorkflowNode): Partial<GraphNode> {
    const outline = outlineOf(session, node);
    const { width, height } = outline;
    // Edges follow the lists, which are another after each measuring.
    return { dimensions: markRaw({ width, height }), handleBounds: shallowReactive(boundsOf(node.id, outline)) };
  }

  function noteFor({ id, position }: WorkflowComment): Node {
    return {
      id: onCanvas(id),
      type: "comment",
      position: { ...position },
      selectable: false,
      zIndex: -2,
      data: { id },
    };
  }

  /** The classes of an edge, apart from those of the path that is highlighted. */
  function lookOf(edge: WorkflowEdge): string {
    const slots = session.slotsOf(edge.source);
    const slot = slots.outputs[edge.sourceHandle] ?? slots.innerOutputs[edge.sourceHandle];
    const isGhost =
      !slot ||
      (outdated.value.has(edge.target) && session.slotsOf(edge.target).gone?.inputs.includes(edge.targetHandle));
    const classes = isGhost ? ["ghost"] : [slotLook(slot), slot.isStream && "stream"];
    classes.push(session.comparison.value?.edges.get(edge.id) ?? false);
    return classes.filter(Boolean).join(" ");
  }

  function classOf(id: string, look: string): string {
    if (session.path.value.edges.has(id)) return `${look} lit`;
    return session.isTracing.value && session.path.value.nodes.size ? `${look} dim` : look;
  }

  function edgeFor(edge: WorkflowEdge): Edge & Partial<GraphEdge> {
    const { id, source, target, sourceHandle, targetHandle } = edge;
    const isPlain = pointsOf(edge).length === 0 && linkNameOf(edge) === undefined;
    return {
      id,
      source,
      target,
      sourceHandle,
      targetHandle,
      type: isPlain ? "default" : "link",
      class: classOf(id, lookOf(edge)),
      selected: session.selectedEdges.value.has(id),
      ariaLabel: labelOf(edge),
      domAttributes: FOCUSABLE,
      data: NOTHING,
    };
  }

  function labelOf(edge: WorkflowEdge): string {
    const [source, target] = [edge.source, edge.target].map((id) => {
      const node = session.index.value.nodes.get(id);
      return node ? session.titleOf(node) : id;
    });
    const name = linkNameOf(edge);
    const ends = { from: `${source} · ${edge.sourceHandle}`, to: `${target} · ${edge.targetHandle}` };
    return name === undefined ? t("editor.links.label", ends) : t("editor.links.named", { ...ends, name });
  }

  watch(
    session.shown,
    (document) => {
      const index = session.index.value.nodes;
      const gone = [...shown.keys()].filter((id) => !index.has(id));
      if (gone.length) flow.removeNodes(gone, false);
      const added: Node[] = [];
      let isAgain = false;
      for (const node of document.nodes) {
        const before = shown.get(node.id);
        if (before === undefined || before.type !== node.type || before.parentNode !== node.parentNode) {
          if (before !== undefined) flow.removeNodes([node.id], false);
          isAgain ||= before !== undefined;
          added.push(nodeFor(node));
        } else if (before.position !== node.position) {
          const there = flow.findNode(node.id);
          if (there) there.position = { ...node.position };
        }
        if (
          before !== undefined &&
          node.type === LOOP &&
          (before.width !== node.width || before.height !== node.height)
        ) {
          const there = flow.findNode(node.id);
          if (there) there.style = zoneStyle(node);
        }
      }
      // What lies in another node comes after it.
      added.sort((a, b) => Number(Boolean(a.parentNode)) - Number(Boolean(b.parentNode)));
      if (isAgain) {
        // The canvas would go on with what it drew for the id: it has to see that the node is gone first.
        ready = nextTick(() => {
          flow.addNodes(added);
          flow.setEdges(session.shown.value.edges.map(edgeFor));
        });
      } else if (flow.nodes.value.length === 0)
        flow.setNodes(added); // to add many takes the square of their number
      else if (added.length) flow.addNodes(added);
      shown = new Map(index);
    },
    { immediate: true },
  );

  let notes = new Map<string, WorkflowComment>();
  watch(
    () => session.shown.value.comments,
    (comments) => {
      const now = new Map((comments ?? []).map((one) => [one.id, one]));
      flow.removeNodes([...notes.keys()].filter((id) => !now.has(id)).map(onCanvas), false);
      flow.addNodes([...now.values()].filter((one) => !notes.has(one.id)).map(noteFor));
      for (const [id, { position }] of now) {
        const there = notes.has(id) && notes.get(id)?.position !== position && flow.findNode(onCanvas(id));
        if (there) there.position = { ...position };
      }
      notes = now;
    },
    { immediate: true },
  );

  watch(
    () => session.shown.value.edges.map((edge) => ({ edge, look: lookOf(edge) })),
    (now, before) => {
      const same =
        before?.length === now.length &&
        now.every(({ edge, look }, index) => before[index]?.edge === edge && before[index]?.look === look);
      looks = new Map(now.map(({ edge, look }) => [edge.id, look]));
      if (!same) void ready.then(() => flow.setEdges(now.map(({ edge }) => edgeFor(edge))));
    },
    { immediate: true, flush: "post" },
  );

  watch([session.path, session.isTracing], () => {
    for (const edge of flow.edges.value) {
      const wanted = classOf(edge.id, looks.get(edge.id) ?? "");
      if (edge.class !== wanted) edge.class = wanted;
    }
  });

  watch(session.selectedEdges, (selected) => {
    for (const edge of flow.edges.value) {
      if (Boolean(edge.selected) !== selected.has(edge.id)) edge.selected = selected.has(edge.id);
    }
  });

  watch(session.selected, (selected) => {
    for (const node of flow.getNodes.value) {
      if (node.selected !== selected.has(node.id)) node.selected = selected.has(node.id);
    }
  });
}
