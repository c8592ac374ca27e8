import { Activity, Bot, FileText, House, MessageSquare, Puzzle, Settings, Workflow, Wrench } from "@lucide/vue";
import type { Component } from "vue";
import type { RouteRecordRaw } from "vue-router";

/** A view of the page: an icon of the rail, and what is shown below its address. */
export interface View {
  id: string;
  /** The path of its icon; the routes of the view begin with it. */
  path: string;
  icon: Component;
  place: "top" | "bottom";
  routes: RouteRecordRaw[];
}

const found = import.meta.glob<{ default: RouteRecordRaw[] }>("../*/routes.ts", { eager: true });

function routesOf(id: string): RouteRecordRaw[] {
  return found[`../${id}/routes.ts`]?.default ?? [];
}

const ALL: Omit<View, "routes">[] = [
  { id: "home", path: "/", icon: House, place: "top" },
  { id: "editor", path: "/workflows", icon: Workflow, place: "top" },
  { id: "chat", path: "/chat", icon: MessageSquare, place: "top" },
  { id: "agents", path: "/agents", icon: Bot, place: "top" },
  { id: "tools", path: "/tools", icon: Wrench, place: "top" },
  { id: "runs", path: "/runs", icon: Activity, place: "top" },
  { id: "files", path: "/files", icon: FileText, place: "top" },
  { id: "plugins", path: "/plugins", icon: Puzzle, place: "bottom" },
  { id: "settings", path: "/settings", icon: Settings, place: "bottom" },
];

/** The views that are there: those whose folder has routes. */
export const views: View[] = ALL.map((view) => ({ ...view, routes: routesOf(view.id) })).filter(
  (view) => view.routes.length > 0,
);
