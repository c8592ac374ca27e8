import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/chat", component: () => import("./ChatView.vue"), meta: { view: "chat" } },
  { path: "/chat/:id(.+)", component: () => import("./ChatView.vue"), meta: { view: "chat" } },
] satisfies RouteRecordRaw[];
