import { computed, shallowReactive } from "vue";
import { may, type Operation } from "../api/rights";

/** Something that can be done: in menus, in the palette, and by keys. */
export interface Command {
  id: string;
  /** The key of the message that names it, such as `editor.undo`, or the words themselves. */
  title: string;
  /** `mod` is Ctrl, or ⌘ on a Mac: `mod+shift+z`, `delete`, `?`. Several keys are separated by a space. */
  keys?: string;
  /** What it asks of the server; without the right to it, it cannot be done. */
  needs?: Operation;
  /** Whether it can be done now. */
  when?: () => boolean;
  run: () => unknown;
  /** The key of the message that names its group. */
  group?: string;
  /** The plugin that it is of. */
  plugin?: string;
  /** Whether it stands in the menu of the canvas, too; the editor's own do. */
  inContext?: boolean;
  /** Whether a manifest declares it, and its code is not there yet. */
  isDeclared?: boolean;
}

const registered = shallowReactive(new Map<string, Command>());

/** All commands: the studio's own, then those of plugins. */
export const commands = computed(() => {
  const all = [...registered.values()];
  return [...all.filter((one) => one.plugin === undefined), ...all.filter((one) => one.plugin !== undefined)];
});

/** Register commands; the function that is returned takes them away. */
export function registerCommands(...list: Command[]): () => void {
  for (const command of list) registered.set(command.id, command);
  return () => {
    for (const command of list) if (registered.get(command.id) === command) registered.delete(command.id);
  };
}

/** Whether the person at this page has the right to what a command does; buttons of others are not shown. */
export function isAllowed(id: string): boolean {
  const needs = registered.get(id)?.needs;
  return needs === undefined || may(needs);
}

export function isPossible(command: Command): boolean {
  return isAllowed(command.id) && (command.when?.() ?? true);
}

/** Do what a command does, if it can be done now. */
export function runCommand(id: string): unknown {
  const command = registered.get(id);
  return command !== undefined && isPossible(command) ? command.run() : undefined;
}

const isMac = /Mac|iP(hone|ad)/.test(navigator.platform);

/** Return keys as people read them: `Ctrl+Shift+Z`, on a Mac `⌘⇧Z`. */
export function shownKeys(keys: string): string {
  const parts = (keys.split(" ")[0] ?? "").split("+").map((part) => {
    if (part === "mod") return isMac ? "⌘" : "Ctrl";
    if (part === "shift") return isMac ? "⇧" : "Shift";
    if (part === "alt") return isMac ? "⌥" : "Alt";
    return part.length === 1 ? part.toUpperCase() : part.charAt(0).toUpperCase() + part.slice(1);
  });
  return parts.join(isMac ? "" : "+");
}

/** Return the name of the keys that an event is of, as `Command.keys` writes them. */
function keysOf(event: KeyboardEvent): string {
  const key = event.key.toLowerCase();
  const shift = event.shiftKey && (key.length > 1 || key !== key.toUpperCase());
  const mod = isMac ? event.metaKey : event.ctrlKey;
  return [mod && "mod", event.altKey && "alt", shift && "shift", key].filter(Boolean).join("+");
}

/** Run the command whose keys an event is of. Text fields keep their own keys, apart from those with `mod`. */
export function onKey(event: KeyboardEvent): void {
  if (event.isComposing || event.defaultPrevented) return;
  const keys = keysOf(event);
  const target = event.target as HTMLElement | null;
  const writes = target?.closest("input, textarea, select, [contenteditable], .cm-editor") != null;
  if (writes && (!keys.startsWith("mod+") || /^mod\+(shift\+)?[zyxcva]$/.test(keys))) return;
  const command = commands.value.find((one) => one.keys?.split(" ").includes(keys) && isPossible(one));
  if (command === undefined) return;
  event.preventDefault();
  command.run();
}
