import type { RouteRecordRaw } from "vue-router";

const meta = { view: "panels" };

export default [
  { path: "/panels", component: () => import("./PanelList.vue"), meta },
  { path: "/panels/:id", component: () => import("./PanelView.vue"), meta },
  { path: "/panels/:id/edit", component: () => import("./PanelEditor.vue"), meta },
] satisfies RouteRecordRaw[];
