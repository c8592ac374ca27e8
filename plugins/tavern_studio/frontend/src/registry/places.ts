import type { OutletName, PartId } from "../extensions/types";
import { unknownName } from "../kit/near";

/** The names of a union, which the compiler holds to be all of them. */
type All<Name extends string> = Record<Name, true>;

const OUTLETS: All<Exclude<OutletName, `${string}[${string}]`>> = {
  "layout:header:before-tabs": true,
  "layout:header:after-tabs": true,
  "layout:header:right": true,
  "editor:toolbar:left": true,
  "editor:toolbar:center": true,
  "editor:toolbar:right": true,
  "editor:canvas:overlay": true,
  "editor:statusbar:left": true,
  "editor:statusbar:right": true,
  "sidebar:icon-bar:tabs:before": true,
  "sidebar:icon-bar:tabs:after": true,
  "sidebar:icon-bar:bottom:before": true,
  "sidebar:panel:header": true,
  "sidebar:panel:footer": true,
  "node:header:left": true,
  "node:header:right": true,
  "node:footer": true,
  "modal:footer": true,
};

const PARTS: All<PartId> = {
  "ui:BaseNode": true,
  "ui:NodeInputControl": true,
  "ui:GraphEditor": true,
  "ui:ContextMenu": true,
  "ui:SidebarManager": true,
  "ui:HomeSidebar": true,
  "ui:StatusBar": true,
  "ui:AssistantPanel": true,
  "ui:RightPreviewPanel": true,
  "ui:SettingsPanel": true,
  "ui:MainMenu": true,
};

/** The panels of the page; one of a plugin has the plugin's name before its id: `acme-notes.board`. */
export const PANELS: readonly string[] = [
  ...["workflows", "home", "nodes", "inspector", "history", "assistant"],
  ...["chat", "agents", "tools", "knowledge", "runs", "triggers", "plugins", "settings", "manual"],
];

const PANEL = /^(sidebar:panel:(?:header|footer))\[(.*)\]$/;

/** Throw if the page has no outlet of a name, or no panel of the name in its brackets. */
export function checkOutlet(name: string): void {
  const [, outlet, panel = ""] = PANEL.exec(name) ?? [];
  if (outlet !== undefined && !PANELS.includes(panel) && !panel.includes("."))
    throw unknownName("panel", panel, PANELS);
  if (outlet === undefined && !(name in OUTLETS)) throw unknownName("outlet", name, Object.keys(OUTLETS));
}

/** Throw if the page has no part of a name. */
export function checkPart(name: string): void {
  if (!(name in PARTS)) throw unknownName("part", name, Object.keys(PARTS));
}
