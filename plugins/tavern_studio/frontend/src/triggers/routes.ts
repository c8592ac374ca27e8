import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/triggers/:trigger?", component: () => import("./TriggersView.vue"), meta: { view: "triggers" } },
] satisfies RouteRecordRaw[];
