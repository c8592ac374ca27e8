import {
  Activity,
  AlarmClock,
  BookOpen,
  Bot,
  FileText,
  House,
  LayoutDashboard,
  LibraryBig,
  MessageSquare,
  Puzzle,
  Settings,
  Workflow,
  Wrench,
} from "@lucide/vue";
import { computed, type Component } from "vue";
import type { RouteRecordRaw } from "vue-router";
import { may, type Operation } from "../api/rights";

/** A view of the page: an icon of the rail, and what is shown below its address. */
interface View {
  id: string;
  /** The path of its icon; the routes of the view begin with it. */
  path: string;
  icon: Component;
  place: "top" | "bottom";
  /** Whether a narrow screen, whose bar has room for few, leaves it to the main menu. */
  isWide?: boolean;
  /** What it shows first; without the right to that it is no view of this person. */
  reads?: Operation;
  routes: RouteRecordRaw[];
}

const found = import.meta.glob<{ default: RouteRecordRaw[] }>("../*/routes.ts", { eager: true });

function routesOf(id: string): RouteRecordRaw[] {
  return found[`../${id}/routes.ts`]?.default ?? [];
}

const ALL: Omit<View, "routes">[] = [
  { id: "home", path: "/", icon: House, place: "top", reads: "GET /api/workflows" },
  { id: "editor", path: "/workflows", icon: Workflow, place: "top", reads: "GET /api/workflows" },
  { id: "chat", path: "/chat", icon: MessageSquare, place: "top", reads: "GET /api/histories" },
  { id: "panels", path: "/panels", icon: LayoutDashboard, place: "top", reads: "GET /api/panels" },
  { id: "agents", path: "/agents", icon: Bot, place: "top", isWide: true, reads: "GET /api/agents" },
  { id: "tools", path: "/tools", icon: Wrench, place: "top", isWide: true, reads: "GET /api/tools" },
  { id: "knowledge", path: "/knowledge", icon: BookOpen, place: "top", isWide: true, reads: "GET /api/knowledge" },
  { id: "runs", path: "/runs", icon: Activity, place: "top", isWide: true, reads: "GET /api/runs" },
  { id: "triggers", path: "/triggers", icon: AlarmClock, place: "top", isWide: true, reads: "GET /api/triggers" },
  { id: "files", path: "/files", icon: FileText, place: "top", isWide: true, reads: "GET /api/files" },
  { id: "manual", path: "/docs", icon: LibraryBig, place: "bottom", isWide: true },
  { id: "plugins", path: "/plugins", icon: Puzzle, place: "bottom", reads: "GET /api/plugins" },
  { id: "settings", path: "/settings", icon: Settings, place: "bottom" },
];

/** The views that are there: those whose folder has routes. */
export const views: View[] = ALL.map((view) => ({ ...view, routes: routesOf(view.id) })).filter(
  (view) => view.routes.length > 0,
);

/** Those that the person at this page may look at. */
export const shownViews = computed(() => views.filter((view) => view.reads === undefined || may(view.reads)));
