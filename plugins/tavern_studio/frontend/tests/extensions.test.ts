import { createApp, defineComponent, h, nextTick, shallowRef, type App, type Component } from "vue";
import { beforeEach, expect, test, vi } from "vitest";
import { apiOf } from "../src/extensions/api";
import { announce } from "../src/extensions/declarations";
import { begin, culprit, next } from "../src/extensions/bisect";
import { Extension } from "../src/extensions/extension";
import { planOf } from "../src/extensions/starting";
import { offerAtWindow } from "../src/extensions/window";
import type { ExtensionApi, PermissionRefusal } from "../src/extensions/types";
import { i18n } from "../src/i18n";
import ValuePart from "../src/kit/values/ValuePart";
import { lookOf } from "../src/editor/looks";
import type { NodeDefinition } from "../src/editor/nodetypes";
import { commands, runCommand } from "../src/registry/commands";
import { registerPart, UiPart } from "../src/registry/components";
import { askHooks, hookName, nodeLook } from "../src/registry/hooks";
import { meetings, operatorOrder } from "../src/registry/layers";
import { PluginOutlet } from "../src/registry/outlets";
import { pageAt } from "../src/registry/pages";
import { panels } from "../src/registry/panels";
import { service } from "../src/registry/services";

const opened: Extension[] = [];

function load(name: string, ...granted: string[]): { extension: Extension; api: ExtensionApi } {
  const extension = new Extension(name, name.toUpperCase(), "1.0.0", "/nowhere/", new Set(granted));
  opened.push(extension);
  return { extension, api: apiOf(extension) };
}

const mounted: App[] = [];

function shown(component: Component, props: Record<string, unknown>, onError?: (error: unknown) => void): HTMLElement {
  const place = document.createElement("div");
  const app = createApp({ render: () => h(component, props) }).use(i18n);
  mounted.push(app);
  app.config.errorHandler = onError;
  app.mount(place);
  return place;
}

const framed = (name: string) => (original: Component) =>
  defineComponent({
    inheritAttrs: false,
    setup:
      (_props, { attrs, slots }) =>
      () =>
        h(name, h(original, attrs, slots)),
  });

beforeEach(() => {
  mounted.splice(0).forEach((app) => app.unmount());
  opened.splice(0).forEach((one) => one.close());
  operatorOrder.value = [];
  vi.spyOn(console, "error").mockImplementation(() => undefined);
});

test("a refusal says plugin, call, permission and remedy", () => {
  const { api } = load("acme", "ui.inject:node:footer");
  let refusal: PermissionRefusal | undefined;
  try {
    api.ui.wrapComponent("ui:StatusBar", (original) => original);
  } catch (error) {
    refusal = error as PermissionRefusal;
  }
  expect(refusal).toMatchObject({
    name: "PermissionError",
    plugin: "acme",
    what: 'ui.wrapComponent("ui:StatusBar")',
    permission: "ui.wrap:ui:StatusBar",
    howToGrant: expect.stringContaining('"ui:StatusBar" to permissions.ui.wrap'),
  });
  for (const fact of ["acme", "ui.wrapComponent", "ui.wrap:ui:StatusBar", "tavern plugins grant acme"])
    expect(refusal?.message).toContain(fact);
  const others: [string, () => unknown][] = [
    ["ui.override:ui:MainMenu", () => api.ui.overrideComponent("ui:MainMenu", {})],
    ["ui.inject:sidebar:panel:header[nodes]", () => api.ui.registerOutletComponent("sidebar:panel:header[nodes]", {})],
    ["hook:client:settings:before-save", () => api.hooks.on("settings:save:before", () => undefined)],
    ["services.override:workflowManager", () => api.services.override("workflowManager", {})],
    ["events.subscribe:NODE_ERROR", () => api.services.get("events").on(["acme.own", "NODE_ERROR"], () => undefined)],
  ];
  expect(() => api.hooks.on("no:such" as "auth:login", () => undefined)).toThrow(/no client hook "no:such"/);
  for (const [permission, call] of others) expect(call, permission).toThrow(expect.objectContaining({ permission }));
});

test("a hook goes by each of its published names", () => {
  const names = ["workflow:before-execute", "node:render:after", "settings:before-save", "auth:login"];
  const others = ["workflow:execute:before", "node:after-render", "settings:save:before", "auth:login"];
  for (const list of [names, others])
    for (const before of ["", "hook:client:"]) expect(list.map((one) => hookName(before + one))).toEqual(names);
});

test("an outlet of all panels covers that of one", () => {
  const { api } = load("acme", "ui.inject:sidebar:panel:header", "events.subscribe:NODE_*");
  api.ui.registerOutletComponent("sidebar:panel:header[nodes]", () => h("b", "here"));
  expect(shown(PluginOutlet, { name: "sidebar:panel:header", panel: "nodes" }).textContent).toBe("here");
  expect(shown(PluginOutlet, { name: "sidebar:panel:header", panel: "home" }).textContent).toBe("");
  api.services.get("events").on(["NODE_ERROR"], () => undefined);
});

test("the interface is frozen, and dead once the plugin is gone", () => {
  const { extension, api } = load("acme", "ui.wrap:ui:StatusBar");
  expect(() => Object.assign(api.ui, { addPanel: null })).toThrow(TypeError);
  expect(() => Object.assign(api, { ui: null })).toThrow(TypeError);
  const add = (id: string) => api.commands.add({ id, title: id, run: () => undefined });
  add("one");
  api.commands.add({ id: "odd", title: undefined as never, keys: 7 as never, run: () => undefined });
  expect(commands.value.map((one) => one.id)).toContain("acme.one");
  extension.close();
  expect(commands.value.map((one) => one.id)).not.toContain("acme.one");
  expect(() => add("two")).toThrow(/not loaded any more/);
  expect(() => api.services.get("workflowManager").current()).toThrow(/not loaded any more/);
});

test("only what was revoked is taken back", () => {
  const { extension, api } = load("acme", "ui.inject:node:footer", "ui.inject:modal:footer");
  api.ui.registerOutletComponent("node:footer", () => h("b", "node"));
  api.ui.registerOutletComponent("modal:footer", () => h("b", "modal"));
  extension.follow(new Set(["ui.inject:modal:footer"]));
  expect(shown(PluginOutlet, { name: "node:footer" }).textContent).toBe("");
  expect(shown(PluginOutlet, { name: "modal:footer" }).textContent).toBe("modal");
  expect(() => api.ui.registerOutletComponent("node:footer", {})).toThrow(/permission/);
});

test("wraps stand in the operator's order, then in their own", () => {
  registerPart("ui:StatusBar", () => h("i", "original"));
  for (const [name, order] of [
    ["a", 2],
    ["b", 1],
    ["c", 3],
  ] as const) {
    load(name, "ui.wrap:ui:StatusBar").api.ui.wrapComponent("ui:StatusBar", framed(name), { order });
  }
  const html = () => shown(UiPart, { part: "ui:StatusBar" }).innerHTML;
  expect(html()).toBe("<c><a><b><i>original</i></b></a></c>");
  operatorOrder.value = ["b", "a"];
  expect(html()).toBe("<b><a><c><i>original</i></c></a></b>");
  expect(meetings.value).toEqual([{ target: "ui:StatusBar", kind: "wrap", plugins: ["b", "a", "c"] }]);
});

test("of two overrides none is used unless one is chosen", () => {
  registerPart("ui:StatusBar", () => h("i", "original"));
  const [first] = ["a", "b"].map((name) => {
    const loaded = load(name, "ui.override:ui:StatusBar");
    loaded.api.ui.overrideComponent("ui:StatusBar", () => h(name));
    return loaded;
  });
  const html = () => shown(UiPart, { part: "ui:StatusBar" }).innerHTML;
  expect(html()).toBe("<i>original</i>");
  expect(meetings.value[0]).toMatchObject({ kind: "override", used: undefined });
  operatorOrder.value = ["b"];
  expect(html()).toBe("<b></b>");
  operatorOrder.value = [];
  first?.extension.close();
  expect(html()).toBe("<b></b>");
  expect(meetings.value).toEqual([]);
});

test("a part is not mounted anew without cause", async () => {
  const onMount = vi.fn();
  registerPart("ui:StatusBar", defineComponent({ mounted: onMount, render: () => h("i") }));
  const { api } = load("acme", "ui.wrap:ui:StatusBar", "ui.wrap:ui:MainMenu");
  api.ui.wrapComponent("ui:StatusBar", framed("b"));
  shown(UiPart, { part: "ui:StatusBar" });
  api.ui.wrapComponent("ui:MainMenu", framed("b"));
  operatorOrder.value = ["acme"];
  await nextTick();
  expect(onMount).toHaveBeenCalledTimes(1);
});

test("each kind of mistake shows the original and is counted", async () => {
  registerPart("ui:StatusBar", () => h("i", "original"));
  const wait = () => new Promise((resolve) => setTimeout(resolve));
  const bad: [string, (original: Component) => Component][] = [
    [
      "while drawn",
      () => () => {
        throw new Error("while drawn");
      },
    ],
    [
      "in setup",
      () => ({
        setup: () => {
          throw new Error("in setup");
        },
      }),
    ],
    [
      "in an event",
      () => () =>
        h("button", {
          onClick: () => {
            throw new Error("in an event");
          },
        }),
    ],
    ["in a promise", () => () => h("button", { onClick: () => Promise.reject(new Error("in a promise")) })],
    [
      "in the wrapper",
      () => {
        throw new Error("in the wrapper");
      },
    ],
    ["no component", () => undefined as never],
  ];
  for (const [what, wrapper] of bad) {
    const { extension, api } = load("acme", "ui.wrap:ui:StatusBar");
    api.ui.wrapComponent("ui:StatusBar", wrapper);
    const place = shown(UiPart, { part: "ui:StatusBar" });
    place.querySelector("button")?.click();
    await wait();
    expect(place.innerHTML, what).toBe("<i>original</i>");
    expect(extension.mistakes.value, what).toHaveLength(1);
    extension.close();
  }
});

test("a mistake of the original is not the wrap's", async () => {
  registerPart("ui:StatusBar", {
    setup: () => () => {
      throw new Error("the studio's own");
    },
  });
  const { extension, api } = load("acme", "ui.wrap:ui:StatusBar");
  api.ui.wrapComponent("ui:StatusBar", framed("b"));
  const seen = vi.fn();
  shown(UiPart, { part: "ui:StatusBar" }, seen);
  expect(seen).toHaveBeenCalledOnce();
  expect(extension.mistakes.value).toEqual([]);
});

test("in an outlet a badge names the plugin, and shows it again", async () => {
  let isBroken = true;
  const { api } = load("acme", "ui.inject:node:footer");
  api.ui.registerOutletComponent("node:footer", () => {
    if (isBroken) throw new Error("broken");
    return h("b", "works");
  });
  const place = shown(PluginOutlet, { name: "node:footer", id: "one" });
  await nextTick();
  expect(place.textContent).toBe("ACME");
  expect(place.querySelector("button")?.title).toContain("broken");
  isBroken = false;
  place.querySelector("button")?.click();
  await nextTick();
  expect(place.textContent).toBe("works");
});

const RUN = { workflow: "w", document: { nodes: [{ id: "n", type: "t" }] }, inputs: { text: "a" } };

test("hooks change one after the other, on copies", async () => {
  const permission = "hook:client:workflow:before-execute";
  const sent = structuredClone(RUN);
  load("b", permission).api.hooks.on(
    "workflow:before-execute",
    (event) => void (event.inputs.text = `${String(event.inputs.text)}b`),
    { order: 2 },
  );
  const bad = load("bad", permission);
  bad.api.hooks.on("workflow:before-execute", (event) => {
    event.inputs.text = "lost";
    throw new Error("on its way");
  });
  load("c", permission).api.hooks.on(
    "workflow:before-execute",
    async (event) => {
      event.inputs.text = `${String(event.inputs.text)}c`;
      Object.assign(event, { workflow: "another" });
    },
    { order: 1 },
  );
  expect(await askHooks("workflow:before-execute", sent)).toEqual({ ...RUN, inputs: { text: "acb" } });
  expect(sent).toEqual(RUN);
  expect(bad.extension.mistakes.value[0]?.message).toBe("on its way");
});

test("a veto names the plugin and its reason", async () => {
  const { extension, api } = load("acme", "hook:client:settings:before-save");
  const never = vi.fn();
  api.hooks.on("settings:save:before", (event) => event.veto("too many"));
  api.hooks.on("settings:before-save", never, { order: 1 });
  await expect(askHooks("settings:before-save", { plugin: "p", values: {} })).rejects.toThrow(/ACME.*too many/);
  expect(never).not.toHaveBeenCalled();
  expect(extension.mistakes.value).toEqual([]);
});

test("a node gets classes and a badge, from a hook that works", () => {
  const permission = "hook:client:node:render:after";
  const bad = load("bad", permission);
  const broken = vi.fn(() => {
    throw new Error("broken");
  });
  bad.api.hooks.on("node:render:after", broken);
  load("odd", permission).api.hooks.on(
    "node:render:after",
    (event) => void Object.assign(event, { classes: null, id: "x" }),
  );
  load("good", permission).api.hooks.on("node:render:after", (event) => {
    event.classes.push("mine");
    event.badge = event.type;
  });
  const node = { id: "n", type: "core:T", title: "T", values: {} };
  expect(nodeLook(() => node)).toEqual({ classes: ["mine"], badge: "core:T" });
  nodeLook(() => node);
  expect(broken).toHaveBeenCalledOnce();
});

test("a service is read-only, shows nothing private, and can be replaced", async () => {
  const { extension, api } = load("acme", "services.override:workflowManager");
  const view = api.services.get("workflowManager");
  expect(() => Object.assign(view, { list: null })).toThrow(/read-only/);
  expect(() => delete (view as Partial<typeof view>).list).toThrow(/read-only/);
  expect(Object.keys(view)).toEqual(["current", "list", "get"]);
  const all = view as unknown as Record<string, unknown>;
  expect([all.execute, all._internalReset]).toEqual([undefined, undefined]);
  api.services.override("workflowManager", (original) => ({
    list: async () => [{ id: "mine", name: typeof original.execute }],
    execute: () => Promise.reject(new Error("cannot")),
  }));
  expect(await view.list()).toEqual([{ id: "mine", name: "function" }]);
  await expect(service("workflowManager").execute({})).rejects.toThrow("cannot");
  expect(extension.mistakes.value[0]?.where).toBe("service workflowManager.execute");
});

test("options of the plugin's own, and what follows them", async () => {
  const { extension, api } = load("acme");
  extension.config.value = { "extensions.acme.max": 1, "extensions.other.max": 9 };
  expect([api.getConfig("max"), api.getConfig("extensions.acme.max"), api.getConfig("extensions.other.max")]).toEqual([
    1,
    1,
    undefined,
  ]);
  const seen = vi.fn();
  const stop = api.onConfigChange("max", seen);
  extension.config.value = { "extensions.acme.max": 2 };
  await nextTick();
  stop();
  extension.config.value = { "extensions.acme.max": 3 };
  await nextTick();
  expect(seen.mock.calls).toEqual([[2]]);
});

test("pages have parameters, and end with their plugin", () => {
  const { extension, api } = load("acme");
  api.router.addRoute({ path: "/board/:id", component: () => null, title: "Board" });
  expect(pageAt("acme", "board/7")?.parameters).toEqual({ id: "7" });
  expect([pageAt("acme", "board"), pageAt("acme", "board/7/8"), pageAt("other", "board/7")]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  expect(commands.value.some((one) => one.title === "Board")).toBe(true);
  extension.close();
  expect(pageAt("acme", "board/7")).toBeUndefined();
  expect(commands.value.some((one) => one.title === "Board")).toBe(false);
});

test("what a manifest declares is there before its code", async () => {
  const { extension, api } = load("acme");
  let arrive: (() => void) | undefined;
  const ran = vi.fn();
  const loaded = new Promise<void>((resolve) => (arrive = resolve));
  const declared = { commands: [{ id: "go", title: "Go" }], panels: [{ id: "notes", title: "Notes" }] };
  announce(extension, declared, loaded, (id) => void runCommand(`acme.${id}`));
  expect(commands.value.filter((one) => one.plugin).map((one) => one.title)).toEqual(["Go"]);
  expect(panels.value).toMatchObject([{ key: "acme.notes", icon: "N", place: "left", component: undefined }]);
  void runCommand("acme.go");
  const remove = api.ui.addPanel({ id: "notes", title: "Notes", place: "right", component: () => h("p") });
  api.commands.add({ id: "go", title: "Go", run: ran });
  expect(panels.value).toMatchObject([{ place: "right", component: expect.anything() }]);
  expect(ran).not.toHaveBeenCalled();
  arrive?.();
  await loaded.then(() => undefined);
  expect(ran).toHaveBeenCalledWith({ workflow: undefined, nodes: [] });
  remove();
  expect(panels.value).toMatchObject([{ component: undefined }]);
  extension.close();
  expect([panels.value, commands.value.filter((one) => one.plugin)]).toEqual([[], []]);
});

test("the interface at the window is that of the plugin whose code asks, at any time", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const here = (name: string, base: string) => new Extension(name, name, "1", base, new Set(["ui.inject:node:footer"]));
  const [below, mine] = [here("below", "node_modules"), here("mine", "extensions.test.ts")];
  let loaded = [below, mine]; // what calls a test is below it on the stack
  offerAtWindow(() => loaded);
  const { extensionApi } = window.ComfyTavern!;
  expect(extensionApi.plugin.name).toBe("mine");
  expect(window.ComfyTavern!.extensionApi).toBe(extensionApi);
  extensionApi.registerNodeUI("core:T", () => null);
  expect(mine.deprecated.value).toEqual(["registerNodeUI → nodes.registerUI"]);
  expect(warn).toHaveBeenCalledOnce();
  expect(() => extensionApi.ui.wrapComponent("ui:BaseNode", (original) => original)).toThrow(/ui.wrap:ui:BaseNode/);
  const put = () => window.ComfyTavern!.extensionApi.ui.registerOutletComponent("node:footer", () => h("b", "late"));
  await new Promise((resolve) => setTimeout(() => resolve(put())));
  expect(shown(PluginOutlet, { name: "node:footer" }).textContent).toBe("late");
  mine.close();
  expect(shown(PluginOutlet, { name: "node:footer" }).textContent).toBe("");
  expect(put).toThrow(/mine is not loaded any more/);
  loaded = [];
  expect(put).toThrow(/no plugin can be named/);
});

test("a start that did not finish is followed by a safe one", () => {
  const mark = { window: "me", at: 1000, names: ["acme"] };
  const planned = (address: string, now: number, me: string, left?: typeof mark) =>
    planOf(address, left, undefined, now, me);
  expect(planned("http://h/", 2000, "me", mark)).toMatchObject({ mode: "safe", suspects: ["acme"] });
  expect(planned("http://h/", 2000, "you", mark)).toMatchObject({ mode: "all", suspects: [] }); // it may still be starting
  expect(planned("http://h/", 9000, "you", mark)).toMatchObject({ mode: "safe", suspects: ["acme"] });
  expect(planned("http://h/?safe=1#/", 0, "me")).toMatchObject({ mode: "safe", suspects: [] });
  expect(planned("http://h/?safe=0", 0, "me").mode).toBe("all");
});

test("halving finds the plugin that it is", () => {
  const plugins = Array.from({ length: 13 }, (_, index) => `p${index}`);
  for (const bad of plugins) {
    let search = begin(plugins);
    let steps = 0;
    while (search && culprit(search) === undefined && steps++ < 10) search = next(search, search.on.includes(bad));
    expect(search && culprit(search)).toBe(bad);
    expect(steps).toBeLessThanOrEqual(4);
  }
  expect(begin([])).toBeUndefined();
});

test("values are shown by a plugin's renderer, and by the page once that has made a mistake or is gone", async () => {
  const { api } = load("acme", "");
  const broken = shallowRef(false);
  const take = api.nodes.registerRenderer("model/*", {
    props: ["value", "compact"],
    render() {
      if (broken.value) throw new Error("no");
      return h("canvas", { "data-hash": (this as unknown as { value: { hash: string } }).value.hash });
    },
  });
  const value = { type: "blob", hash: "ab", mediaType: "model/gltf", length: 9 };
  const place = shown(ValuePart, { value, compact: true });
  expect(place.querySelector("canvas")?.dataset.hash).toBe("ab");
  expect(shown(ValuePart, { value: "text" }).querySelector("canvas")).toBeNull();
  broken.value = true;
  await nextTick();
  expect(place.querySelector("a")?.href).toContain("/api/blobs/ab");
  take();
  expect(shown(ValuePart, { value }).querySelector("canvas")).toBeNull();
});

test("values of a slot with a category are shown by the renderer of that category, and icons by theirs", () => {
  const { api } = load("acme", "");
  api.nodes.registerRenderer("Score", { render: () => h("meter") });
  expect(shown(ValuePart, { value: 3, categories: ["Score"] }).querySelector("meter")).not.toBeNull();
  api.nodes.registerIcon("acme:Mail", { render: () => h("svg", { class: "own" }) });
  const { icon } = lookOf({ type: "Mail", namespace: "acme", category: "Text" } as NodeDefinition);
  expect(shown(icon, {}).querySelector("svg.own")).not.toBeNull();
});
