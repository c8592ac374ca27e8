import { shallowReactive } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { page } from "../api/page";
import { listen, onMissed } from "../api/socket";
import { t } from "../i18n";
import { say } from "../kit/toasts";
import { within } from "../kit/time";
import { commands, runCommand } from "../registry/commands";
import { operatorOrder } from "../registry/layers";
import { know } from "../registry/known";
import { showSandboxed } from "../sandbox/panels";
import { apiOf, leads } from "./api";
import { announce, applyDeclarations, type Declaration, type Declared } from "./declarations";
import { Extension, ownerOf } from "./extension";
import { watchForSecondVue } from "./secondvue";
import { isWanted, marked } from "./starting";
import type { ExtensionApi } from "./types";
import { offerAtWindow } from "./window";

const STUDIO = "tavern-studio";
const DEADLINE = 10_000;
/** Milliseconds for which the next plugin waits for the one before, so that a start that hangs has one suspect. */
const GRACE = 1000;

type Frontend = NonNullable<Schemas["PluginInfo"]["frontend"]> &
  Declared & { mode?: string; declarations?: Declaration[] };
type Info = Schemas["PluginInfo"] & { frontend: Frontend };
type Module = Record<string, unknown>;

/** The front ends of this page, by the names of their plugins. */
export const extensions = shallowReactive(new Map<string, Extension>());
/** What each of them was loaded from. */
const infos = new Map<string, Info>();
const activated = new Set<string>();
/** The addresses of plugins that are being written: a development server's, in place of what the host serves. */
const written = JSON.parse(document.documentElement.dataset.dev ?? "{}") as Record<string, string>;

/** What such a server has sent since: its address is evaluated once, and stays what it was then. */
const newest = new Map<string, Module>();

const hasFrontend = (plugin: Schemas["PluginInfo"]): plugin is Info =>
  plugin.frontend != null &&
  plugin.name !== STUDIO &&
  ["loaded", "started"].includes(plugin.state ?? "") &&
  isWanted(plugin.name);
/** Whether nothing of a front end, no style either, is for the page itself. */
const isSandboxed = ({ frontend }: Info) => frontend.mode === "sandbox";
const keyOf = ({ version, frontend }: Info) => JSON.stringify([version, frontend]);
const grantsOf = (plugin: Info) =>
  new Set((plugin.permissions ?? []).filter((one) => one.granted).map((one) => one.name));
const addressOf = (url: string) => new URL(url.startsWith("/") ? page.base + url : url, location.href).href;

/** Load the front ends of the plugins that may run, and follow what becomes of them, as long as the page is open. */
export function follow(goTo: (path: string) => unknown): void {
  leads.to = goTo;
  offerAtWindow(() => extensions.values());
  watchForSecondVue(
    () => extensions.values(),
    (extension) => fail(extension, new Error(t("extensions.secondVue", { plugin: extension.title }))),
  );
  addEventListener("error", (event) => blame(event, event.error));
  addEventListener("unhandledrejection", (event) => blame(event, event.reason));
  listen(["PLUGINS_CHANGED"], ({ payload }) => {
    activated.add(String(payload.name));
    soon();
  });
  listen(["SETTINGS_CHANGED"], ({ payload }) => void configure(String(payload.plugin)));
  addEventListener("tavern:replace", (event) =>
    replace((event as CustomEvent<{ plugin: string; module: Module }>).detail),
  );
  onMissed(soon);
  void configure(STUDIO);
  soon();
}

/** Put what a development server has built anew in the place of what it gave before. */
function replace({ plugin, module }: { plugin: string; module: Module }): void {
  const [extension, info] = [extensions.get(plugin), infos.get(plugin)];
  if (extension === undefined || info === undefined) return;
  // What it did when it was evaluated, it did as the one that is dropped.
  if (!setupOf(module) && !info.frontend.declarations?.length) return location.reload();
  newest.set(plugin, module);
  drop(extension);
  void start(info, module);
}

/** What goes wrong outside of any component, such as in a timer, is counted to the plugin whose code it is in. */
function blame(event: Event, error: unknown): void {
  const owner = ownerOf(extensions.values(), error);
  if (owner === undefined) return;
  event.preventDefault();
  owner.fail("script", error);
}

let due: ReturnType<typeof setTimeout> | undefined;
let running: Promise<void> = Promise.resolve();

function soon(): void {
  clearTimeout(due);
  due = setTimeout(() => void (running = running.then(synchronize, synchronize)), 30); // events come in crowds
}

async function synchronize(): Promise<void> {
  const again = new Set(activated);
  activated.clear();
  const plugins = await ask(api.GET("/api/plugins")).catch(() => undefined); // as below
  if (plugins === undefined) return; // the connection is lost, or the person here may not know of plugins
  know(plugins);
  const wanted = new Map(plugins.filter(hasFrontend).map((one) => [one.name, one]));
  for (const [name, extension] of extensions) {
    const info = wanted.get(name);
    const before = infos.get(name);
    if (!info || !before || keyOf(before) !== keyOf(info) || again.has(name)) drop(extension);
    else extension.follow(grantsOf(info));
  }
  const preloads = [...wanted.values()]
    .filter((one) => !extensions.has(one.name) && !isSandboxed(one))
    .flatMap(preload);
  for (const info of wanted.values()) {
    if (extensions.has(info.name)) continue;
    const done = start(info, newest.get(info.name));
    await Promise.race([done, new Promise((resolve) => setTimeout(resolve, GRACE))]);
  }
  preloads.forEach((link) => link.remove());
}

/** Fetch a module without running it: modules are run one after the other, but come together. */
function preload({ name, frontend }: Info): HTMLLinkElement[] {
  return frontend.entryUrl && !(name in written) ? [addLink("modulepreload", addressOf(frontend.entryUrl))] : [];
}

function addLink(rel: string, href: string, plugin = ""): HTMLLinkElement {
  const link = Object.assign(document.createElement("link"), { rel, href });
  if (plugin) link.dataset.plugin = plugin;
  document.head.append(link);
  return link;
}

function drop(extension: Extension): void {
  extension.close();
  extensions.delete(extension.name);
  infos.delete(extension.name);
}

function fail(extension: Extension, error: unknown): void {
  extension.close();
  Object.assign(extension.state, { status: "failed", reason: String((error as Error | undefined)?.message ?? error) });
  extension.fail("load", error);
}

let evaluations = 0;
const evaluated = new Set<string>();

const failed = new Set<string>();

/** Import a module; one that has failed, or is run for its effects, is evaluated again under another address. */
async function evaluate(address: string): Promise<Module> {
  const isFirst = !evaluated.has(address);
  evaluated.add(address);
  const found = failed.has(address) ? undefined : ((await import(/* @vite-ignore */ address)) as Module);
  if (found !== undefined && (isFirst || setupOf(found))) return found;
  const url = new URL(address);
  url.searchParams.set("again", String(++evaluations));
  return (await import(/* @vite-ignore */ url.href)) as Module;
}

const setupOf = (module: Module) =>
  typeof module.default === "function" ? (module.default as (api: ExtensionApi) => unknown) : undefined;

/** Load a front end; `module` is given where a development server has sent it already. */
async function start(info: Info, module?: Module): Promise<void> {
  const { name, frontend } = info;
  const first = written[name] ?? addressOf(frontend.entryUrl ?? frontend.styleUrls?.[0] ?? "");
  const folder = `/plugins/${name}/`;
  const base = first.includes(folder) ? first.split(folder)[0] + folder : `${new URL(first).origin}/`;
  const extension = new Extension(name, info.displayName, info.version, base, grantsOf(info));
  extensions.set(name, extension);
  infos.set(name, info);
  for (const url of name in written || isSandboxed(info) ? [] : (frontend.styleUrls ?? [])) {
    const link = addLink("stylesheet", addressOf(url), name);
    extension.hold(undefined, () => link.remove());
  }
  const began = performance.now();
  const unmark = marked(name);
  const loaded = within(DEADLINE, run(extension, info, first, module)).then(
    () => {
      if (extension.state.status === "loading")
        Object.assign(extension.state, { status: "active", milliseconds: performance.now() - began });
    },
    (error: unknown) => {
      failed.add(first);
      if (extensions.get(name) === extension && extension.state.status !== "failed") fail(extension, error);
    },
  );
  announce(extension, frontend, loaded, (id) => runDeclared(extension, id));
  await loaded;
  setTimeout(unmark, 200); // once what it adds was drawn
}

/** Run a command that the manifest declares, now that the module had the time to give it. */
function runDeclared(extension: Extension, id: string): unknown {
  const whole = `${extension.name}.${id}`;
  const isThere = commands.value.some((one) => one.id === whole && !one.isDeclared);
  return isThere ? runCommand(whole) : say(t("extensions.noCommand", { plugin: extension.title, id }), "bad");
}

async function run(extension: Extension, info: Info, entry: string, sent?: Module): Promise<void> {
  const { name, frontend, configOptions } = info;
  if (configOptions?.length) await configure(name);
  const api = apiOf(extension);
  if (frontend.entryUrl == null) return; // a theme
  if (isSandboxed(info)) return showSandboxed(api, frontend, addressOf);
  const module = sent ?? (await evaluate(entry));
  if (extensions.get(name) !== extension || extension.state.status === "failed") return;
  const clean = await setupOf(module)?.(api);
  if (typeof clean === "function") extension.hold(undefined, clean as () => void); // at once, where it went meanwhile
  applyDeclarations(extension, api, frontend.declarations ?? [], module);
}

/** Ask for the values of a plugin's options; of the studio's own, the order that the operator gave to plugins. */
async function configure(plugin: string): Promise<void> {
  const extension = extensions.get(plugin);
  if (extension === undefined && plugin !== STUDIO) return;
  const params = { path: { name: plugin } };
  const values = await ask(api.GET("/api/plugins/{name}/settings", { params })).catch(() => undefined); // it keeps those from before
  if (values === undefined) return;
  if (extension !== undefined) extension.config.value = values;
  else operatorOrder.value = namesIn(values["extensions.tavern-studio.uiOrder"]);
}

const namesIn = (value: unknown) =>
  String(value ?? "")
    .split(/[\s,]+/)
    .filter(Boolean);
