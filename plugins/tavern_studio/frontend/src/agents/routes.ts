import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/agents/:id?/:part(character)?", component: () => import("./AgentsView.vue"), meta: { view: "agents" } },
] satisfies RouteRecordRaw[];
