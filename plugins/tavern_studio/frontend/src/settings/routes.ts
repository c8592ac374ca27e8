import type { RouteRecordRaw } from "vue-router";

export default [
  { path: "/settings/:section?", component: () => import("./SettingsView.vue"), meta: { view: "settings" } },
] satisfies RouteRecordRaw[];
