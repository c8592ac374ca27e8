import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/knowledge/:base?/:entry?", component: () => import("./KnowledgeView.vue"), meta: { view: "knowledge" } },
] satisfies RouteRecordRaw[];
