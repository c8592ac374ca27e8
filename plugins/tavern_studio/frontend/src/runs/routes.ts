import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/runs/:id?", component: () => import("./RunsView.vue"), meta: { view: "runs" } },
] satisfies RouteRecordRaw[];
