import type { Component } from "vue";
import { addPanel, type Place } from "../registry/panels";
import { addCommand } from "./api";
import type { Extension } from "./extension";
import type { ExtensionApi, ExtensionCommand, MenuItem, OutletName, PartId, Wrapper } from "./types";

/** What a plugin's Python declares with `tavern_declare_ui`: which export of its module goes where. */
export interface Declaration {
  kind: "menuItem" | "panel" | "nodeUi" | "route" | "outlet" | "wrap" | "override";
  target: string;
  export?: string | null;
  title?: string | null;
  order?: number;
  options?: Record<string, unknown>;
}

/** Put what was declared where it belongs; one mistake does not keep the others away. */
export function applyDeclarations(
  extension: Extension,
  api: ExtensionApi,
  declared: Declaration[],
  module: Record<string, unknown>,
): void {
  for (const one of declared) {
    const where = `${one.kind} ${one.target}`;
    try {
      const value = module[one.export ?? "default"];
      if (value === undefined) throw new Error(`the module has no export ${JSON.stringify(one.export ?? "default")}`);
      apply(api, one, value);
    } catch (error) {
      extension.fail(where, error);
    }
  }
}

function apply(
  { ui, nodes, router }: ExtensionApi,
  { kind, target, title, order, options = {} }: Declaration,
  value: unknown,
): void {
  const component = value as Component;
  const named = { id: target, title: title ?? target };
  const text = (key: string) => (typeof options[key] === "string" ? options[key] : undefined);
  if (kind === "menuItem")
    ui.addMenuItem({
      ...named,
      keys: text("keys"),
      menu: text("menu") as MenuItem["menu"],
      run: value as MenuItem["run"],
    });
  else if (kind === "panel") ui.addPanel({ ...named, icon: text("icon"), place: text("place") as Place, component });
  else if (kind === "route") router.addRoute({ path: text("path") ?? target, title: title ?? undefined, component });
  else if (kind === "nodeUi") nodes.registerUI(target, component);
  else if (kind === "outlet") ui.registerOutletComponent(target as OutletName, component, { order });
  else if (kind === "wrap") ui.wrapComponent(target as PartId, value as Wrapper, { order });
  else ui.overrideComponent(target as PartId, component);
}

/** What a manifest names, so that it is shown before the code is there. */
export interface Declared {
  commands?: { id: string; title: string; keys?: string | null }[];
  panels?: { id: string; title: string; icon?: string | null; place?: Place }[];
}

/** Show the commands and panels of a manifest: a command that is asked for waits until the module has given it. */
export function announce(
  extension: Extension,
  { commands = [], panels = [] }: Declared,
  loaded: Promise<unknown>,
  runs: (id: string) => unknown,
): void {
  for (const { id, title, keys } of commands) {
    const command: ExtensionCommand = { id, title, keys: keys ?? undefined, run: () => loaded.then(() => runs(id)) };
    extension.hold(undefined, addCommand(extension, command, true));
  }
  for (const panel of panels) extension.hold(undefined, addPanel(extension, panel));
}
