import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/workflows", component: () => import("./EditorView.vue"), meta: { view: "editor" } },
  { path: "/workflows/:id(.+)", component: () => import("./EditorView.vue"), meta: { view: "editor" } },
] satisfies RouteRecordRaw[];
