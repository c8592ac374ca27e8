import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/files/:path(.*)?", component: () => import("./FilesView.vue"), meta: { view: "files" } },
] satisfies RouteRecordRaw[];
