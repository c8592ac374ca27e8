import type { EdgeProps } from "@vue-flow/core";
import { h, inject, type FunctionalComponent } from "vue";
import { BOXES, edgePath, NO_BOXES } from "./routing";

/** The line of an edge, and the wider one that the pointer meets. The library's own are two components for each edge. */
const EdgePath: FunctionalComponent<EdgeProps> = ({ source, target, sourceX, sourceY, targetX, targetY }) => {
  const boxes = inject(BOXES, NO_BOXES);
  const d = edgePath({ x: sourceX, y: sourceY }, { x: targetX, y: targetY }, [source, target], boxes.value);
  return [
    h("path", { class: "vue-flow__edge-path", d }),
    h("path", { class: "vue-flow__edge-interaction", d, fill: "none", "stroke-width": 20, "stroke-opacity": 0 }),
  ];
};

export default EdgePath;
