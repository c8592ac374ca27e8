import type { Edge, GraphEdge, GraphNode, Node, VueFlowStore } from "@vue-flow/core";
import { markRaw, nextTick, watch } from "vue";
import { onCanvas } from "../comments";
import { LOOP, type WorkflowComment, type WorkflowEdge, type WorkflowNode } from "../document";
import type { Session } from "../session";
import { slotLook } from "../slots";
import { zoneSize, type Size } from "../zones";

/** Nodes and edges are looked up in the document; the canvas would make an object of its own for each of them reactive. */
const NOTHING = markRaw({});

function zoneStyle(node: WorkflowNode) {
  const { width, height } = zoneSize(node);
  return { width: `${width}px`, height: `${height}px` };
}

/** The size of a node as it is drawn. */
export function sizeOf(flow: VueFlowStore, id: string): Size {
  const drawn = flow.findNode(id)?.dimensions;
  return { width: drawn?.width || 220, height: drawn?.height || 140 };
}

/** Show a session's document on the canvas: what is new, gone or another since the last picture is put there. */
export function useFlow(session: Session, flow: VueFlowStore): void {
  let shown = new Map<string, WorkflowNode>();
  // Edges are drawn once it is known where the handles of their nodes are; before, each would be drawn twice.
  let ready = session.shown.value.nodes.length ? new Promise<void>((done) => flow.onNodesInitialized(() => done())) : Promise.resolve();

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
    };
  }

  function noteFor({ id, position }: WorkflowComment): Node {
    return { id: onCanvas(id), type: "comment", position: { ...position }, selectable: false, zIndex: -2, data: { id } };
  }

  function edgeFor(edge: WorkflowEdge): Edge & Partial<GraphEdge> {
    const slots = session.slotsOf(edge.source);
    const slot = slots.outputs[edge.sourceHandle] ?? slots.innerOutputs[edge.sourceHandle];
    const isGhost = !slot || session.slotsOf(edge.target).gone?.inputs.includes(edge.targetHandle);
    const classes = isGhost ? ["ghost"] : [slotLook(slot), slot.isStream && "stream"];
    classes.push(session.comparison.value?.edges.get(edge.id) ?? false);
    return {
      id: edge.id,
      source: edge.source,
      target: edge.target,
      sourceHandle: edge.sourceHandle,
      targetHandle: edge.targetHandle,
      class: classes.filter(Boolean).join(" "),
      selected: session.selectedEdges.value.has(edge.id),
      data: NOTHING,
    };
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
        if (before !== undefined && node.type === LOOP && (before.width !== node.width || before.height !== node.height)) {
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
      } else if (flow.nodes.value.length === 0) flow.setNodes(added); // to add many takes the square of their number
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
    () => session.shown.value.edges.map((edge) => ({ edge, made: edgeFor(edge) })),
    (now, before) => {
      const same =
        before?.length === now.length &&
        now.every(({ edge, made }, index) => before[index]?.edge === edge && before[index]?.made.class === made.class);
      if (!same) void ready.then(() => flow.setEdges(now.map(({ made }) => made)));
    },
    { immediate: true, flush: "post" },
  );

  watch(session.selected, (selected) => {
    for (const node of flow.getNodes.value) {
      if (node.selected !== selected.has(node.id)) node.selected = selected.has(node.id);
    }
  });
}
