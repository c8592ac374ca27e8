import { effectScope, watch, type Component } from "vue";
import { i18n } from "../i18n";
import { unknownName } from "../kit/near";
import { registerCommands } from "../registry/commands";
import { current } from "../registry/current";
import { addHook, hookName } from "../registry/hooks";
import { addLayer } from "../registry/layers";
import { fillOutlet } from "../registry/outlets";
import { addPage } from "../registry/pages";
import { checkOutlet, checkPart } from "../registry/places";
import { addPanel, PLACES } from "../registry/panels";
import { iconTarget, rendererTarget } from "../registry/renderers";
import { callService, readOnly, service } from "../registry/services";
import type { Extension } from "./extension";
import { onLogin } from "./login";
import type { CommandContext, ExtensionApi, ExtensionCommand, Login, MenuItem } from "./types";

export const API_VERSION = "0.1";

/** What goes to another address of the page; the loader sets it, who has the router. */
export const leads: { to: (path: string) => unknown } = { to: () => undefined };

const quoted = (method: string, name: unknown) => `${method}(${JSON.stringify(String(name))})`;

/** Return what a plugin's `setup` is called with: its own, frozen; each call is checked and can be taken back. */
export function apiOf(extension: Extension): ExtensionApi {
  return frozen({
    plugin: { name: extension.name, version: extension.version },
    apiVersion: API_VERSION,
    ui: uiOf(extension),
    nodes: {
      registerUI: shownIn(extension, "registerUI", (type) => `node:${type}`),
      registerIcon: shownIn(extension, "registerIcon", iconTarget),
      registerRenderer: shownIn(extension, "registerRenderer", rendererTarget),
    },
    router: {
      addRoute({ path, component, title }) {
        extension.need(quoted("router.addRoute", path));
        const remove = addPage(extension, path, asComponent(component), title);
        const command = title
          ? addCommand(extension, { id: `page:${path}`, title, run: () => leads.to(pathOf(extension, path)) })
          : undefined;
        return extension.hold(undefined, () => (remove(), command?.()));
      },
      push(path) {
        extension.need(quoted("router.push", path));
        leads.to(pathOf(extension, path));
      },
    },
    commands: {
      add(command) {
        extension.need(quoted("commands.add", command.id));
        return extension.hold(undefined, addCommand(extension, command));
      },
    },
    hooks: {
      on(name, hook, options) {
        const known = hookName(name);
        const permission = `hook:client:${known}`;
        extension.need(quoted("hooks.on", name), permission);
        if (known === "auth:login")
          return extension.hold(permission, onLogin(extension, hook as (event: Login) => unknown));
        return extension.hold(permission, addHook(extension, known, hook, options?.order));
      },
    },
    services: servicesOf(extension),
    ...configOf(extension),
    get locale() {
      return i18n.global.locale.value as "en" | "zh";
    },
    t(texts, values = {}) {
      const text = texts[i18n.global.locale.value as "en" | "zh"] ?? texts.en;
      return text.replace(/\{(\w+)\}/g, (whole, key: string) => (key in values ? String(values[key]) : whole));
    },
  });
}

/** A method of `nodes` that puts a component of the plugin's in the place of the page's own at some target. */
function shownIn(extension: Extension, method: string, targetOf: (name: string) => string) {
  return (name: string, component: Component) => {
    extension.need(quoted(`nodes.${method}`, name));
    const layer = { owner: extension, kind: "override" as const, order: 0, value: asComponent(component) };
    return extension.hold(undefined, addLayer(targetOf(String(name)), layer));
  };
}

function frozen<T extends object>(value: T): T {
  for (const part of Object.values(Object.getOwnPropertyDescriptors(value))) {
    if (typeof part.value === "object" && part.value !== null) Object.freeze(part.value);
  }
  return Object.freeze(value);
}

function asComponent(component: unknown): Component {
  if (typeof component !== "function" && (typeof component !== "object" || component === null)) {
    throw new TypeError(`a Vue component was expected, not ${component === null ? "null" : typeof component}`);
  }
  return component as Component;
}

const pathOf = (extension: Extension, path: string) => `/x/${extension.name}/${path.replace(/^\//, "")}`;

export function addCommand(
  extension: Extension,
  command: ExtensionCommand & Pick<MenuItem, "menu">,
  isDeclared = false,
): () => void {
  const { title, keys, when, run } = command;
  const context = (): CommandContext => ({
    workflow: current.value?.id,
    nodes: [...(current.value?.selected.value ?? [])],
  });
  return registerCommands({
    id: `${extension.name}.${command.id}`,
    title: String(title),
    keys: keys === undefined ? undefined : String(keys),
    plugin: extension.name,
    inContext: command.menu === "context",
    isDeclared,
    when: when && (() => Boolean(extension.guard(`command ${command.id}`, when)())),
    run: () => extension.guard(`command ${command.id}`, run)(context()),
  });
}

function uiOf(extension: Extension): ExtensionApi["ui"] {
  const layer = (kind: "wrap" | "override", part: string, value: unknown, order = 0) => {
    checkPart(String(part));
    const permission = `ui.${kind}:${part}`;
    extension.need(quoted(`ui.${kind}Component`, part), permission);
    return extension.hold(permission, addLayer(part, { owner: extension, kind, order, value }));
  };
  return {
    addMenuItem(item) {
      extension.need(quoted("ui.addMenuItem", item.id));
      return extension.hold(undefined, addCommand(extension, item));
    },
    addPanel(panel) {
      extension.need(quoted("ui.addPanel", panel.id));
      asComponent(panel.component);
      if (!PLACES.includes(panel.place ?? "left")) throw new TypeError(`a panel stands at one of ${PLACES.join(", ")}`);
      return extension.hold(undefined, addPanel(extension, panel));
    },
    registerOutletComponent(outlet, component, options) {
      checkOutlet(String(outlet));
      // A panel's, or that of all panels.
      const wanted = [outlet, outlet.replace(/\[.*$/, "")].map((one) => `ui.inject:${one}`);
      const permission = extension.need(quoted("ui.registerOutletComponent", outlet), ...wanted);
      return extension.hold(permission, fillOutlet(extension, outlet, asComponent(component), options?.order));
    },
    wrapComponent(part, wrapper, options) {
      if (typeof wrapper !== "function")
        throw new TypeError("a function from the original component to another one was expected");
      return layer("wrap", part, wrapper, options?.order);
    },
    overrideComponent: (part, component) => layer("override", part, asComponent(component)),
  };
}

function servicesOf(extension: Extension): ExtensionApi["services"] {
  const listening = (types: unknown) => {
    for (const type of Array.isArray(types) ? types.map(String) : []) {
      const granted = [...extension.permissions].map((one) => one.replace(/^events\.subscribe:/, ""));
      const isCovered = granted.some((one) => one.endsWith("*") && type.startsWith(one.slice(0, -1)));
      const what = quoted('services.get("events").on', type);
      if (type.startsWith(`${extension.name}.`) || isCovered) extension.need(what);
      else extension.need(what, `events.subscribe:${type}`);
    }
  };
  return {
    get(name) {
      if (name !== "workflowManager" && name !== "events")
        throw unknownName("client service", String(name), ["workflowManager", "events"]);
      return readOnly(name, (method, values) => {
        extension.need(`services.get("${name}").${method}`);
        if (name === "events") listening(values[0]);
        const guarded = values.map((one) =>
          typeof one === "function" ? extension.guard(`service ${name}`, one as () => unknown) : one,
        );
        const result = callService(name, method, guarded);
        return typeof result === "function" ? extension.hold(undefined, result as () => void) : result;
      }) as never;
    },
    override(name, replacement) {
      const permission = `services.override:${name}`;
      extension.need(quoted("services.override", name), permission);
      if (name !== "workflowManager")
        throw new TypeError(`the client service ${JSON.stringify(name)} cannot be replaced`);
      const value = typeof replacement === "function" ? replacement(service(name)) : replacement;
      return extension.hold(
        permission,
        addLayer(`service:${name}`, { owner: extension, kind: "override", order: 0, value }),
      );
    },
  };
}

function configOf(extension: Extension): Pick<ExtensionApi, "getConfig" | "onConfigChange"> {
  const prefix = `extensions.${extension.name}.`;
  const valueOf = (option: string) => extension.config.value[option.startsWith(prefix) ? option : prefix + option];
  return {
    getConfig: <T>(option: string) => valueOf(option) as T,
    onConfigChange<T>(option: string, hook: (value: T) => void) {
      extension.need(quoted("onConfigChange", option));
      const call = extension.guard(`onConfigChange ${option}`, hook);
      const scope = effectScope(true);
      // Its own scope: one that is made in a component's setup would else end with that component.
      scope.run(() =>
        watch(
          () => JSON.stringify(valueOf(option)),
          () => call(valueOf(option) as T),
        ),
      );
      return extension.hold(undefined, () => scope.stop());
    },
  };
}
