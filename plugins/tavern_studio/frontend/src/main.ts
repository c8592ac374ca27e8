import { createPinia } from "pinia";
import { createApp } from "vue";
import { createRouter, createWebHashHistory } from "vue-router";
import { may, whoIsHere } from "./api/rights";
import { connect } from "./api/socket";
import AppShell from "./app/AppShell.vue";
import IconRail from "./app/IconRail.vue";
import MainMenu from "./app/MainMenu.vue";
import { toggleTheme } from "./app/theme";
import { views } from "./app/views";
import { noteLeaving } from "./kit/stale";
import { i18n, preferredLanguage, setLanguage, t } from "./i18n";
import { registerCommands } from "./registry/commands";
import { registerPart } from "./registry/components";
import { isExporting } from "./sharing/projects";
import { NEW_KINDS } from "./tools/toolfile";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";

registerPart("ui:SidebarManager", IconRail);
registerPart("ui:MainMenu", MainMenu);

const router = createRouter({
  history: createWebHashHistory(),
  routes: [
    ...views.flatMap((view) => view.routes),
    { path: "/x/:plugin/:rest(.*)*", component: () => import("./extensions/ExtensionPage.vue") },
    { path: "/:rest(.*)*", redirect: "/" },
  ],
});

noteLeaving(router);
registerCommands(
  ...views.map((view) => ({
    id: `app.go.${view.id}`,
    title: `app.view.${view.id}`,
    needs: view.reads,
    run: () => router.push(view.path),
  })),
  ...NEW_KINDS.map((kind) => ({
    id: `tools.new.${kind}`,
    title: `tools.new.${kind}`,
    needs: "PUT /api/tool-files/{name}" as const,
    run: () => router.push({ path: "/tools", query: { new: kind } }),
  })),
  {
    id: "app.new",
    title: "home.new",
    needs: "POST /api/workflows",
    run: () => router.push({ path: "/", query: { new: "workflow" } }),
  },
  {
    id: "app.import",
    title: "app.import",
    needs: "POST /api/imports",
    run: async () => {
      const { importFiles } = await import("./sharing/importing");
      const path = (await importFiles()).at(-1);
      if (path !== undefined) await router.push(path);
    },
  },
  {
    id: "app.exportProject",
    title: "sharing.project.export",
    needs: "GET /api/project-archive",
    run: () => void (isExporting.value = true),
  },
  { id: "app.theme", title: "app.theme", run: toggleTheme },
  {
    id: "app.language",
    title: "app.language",
    run: () => setLanguage(i18n.global.locale.value === "zh" ? "en" : "zh"),
  },
);

document.documentElement.lang = preferredLanguage();
router.afterEach((to) => {
  const name = to.meta.view ? `${t(`app.view.${String(to.meta.view)}`)} — ` : "";
  document.title = `${name}${document.documentElement.dataset.name ?? "tavern"}`;
});
// The router hears of addresses only once it has shown the first view, which then writes its own over one that came before.
addEventListener("hashchange", ({ newURL }) => {
  const asked = new URL(newURL).hash.slice(1);
  void router.isReady().then(() => {
    if (asked && asked !== router.currentRoute.value.fullPath) void router.replace(asked);
  });
});

connect();
// Who may use panels and nothing else begins there.
void Promise.all([whoIsHere(), router.isReady()]).then(() => {
  const isGuest = may("GET /api/panels") && !may("GET /api/workflows");
  if (isGuest && router.currentRoute.value.path === "/") void router.replace("/panels");
});
void import("./extensions/loader").then(({ follow }) => follow((path) => router.push(path)));
createApp(AppShell).use(createPinia()).use(i18n).use(router).mount("#app");
