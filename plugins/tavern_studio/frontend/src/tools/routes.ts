import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/tools/:id(.+)?", component: () => import("./ToolsView.vue"), meta: { view: "tools" } },
] satisfies RouteRecordRaw[];
