import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/docs/:page(.*)?", component: () => import("./ManualView.vue"), meta: { view: "manual" } },
] satisfies RouteRecordRaw[];
