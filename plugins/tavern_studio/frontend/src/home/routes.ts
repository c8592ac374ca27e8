import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/", component: () => import("./HomeView.vue"), meta: { view: "home" } },
] satisfies RouteRecordRaw[];
