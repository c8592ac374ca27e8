import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/agents/:id?", component: () => import("./AgentsView.vue"), meta: { view: "agents" } },
] satisfies RouteRecordRaw[];
