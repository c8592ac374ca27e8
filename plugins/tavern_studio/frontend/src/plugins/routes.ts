import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/plugins/:name?", component: () => import("./PluginsView.vue"), meta: { view: "plugins" } },
] satisfies RouteRecordRaw[];
