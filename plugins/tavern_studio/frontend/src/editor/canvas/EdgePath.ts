import { getBezierPath, type EdgeProps } from "@vue-flow/core";
import { h, type FunctionalComponent } from "vue";

/** The line of an edge, and the wider one that the pointer meets. The library's own are two components for each edge. */
const EdgePath: FunctionalComponent<EdgeProps> = (props) => {
  const [d] = getBezierPath(props);
  return [
    h("path", { class: "vue-flow__edge-path", d }),
    h("path", { class: "vue-flow__edge-interaction", d, fill: "none", "stroke-width": 20, "stroke-opacity": 0 }),
  ];
};

export default EdgePath;
