import { shallowReactive, toRaw } from "vue";
import { ApiError } from "../api/client";
import type { ClientHooks } from "../extensions/types";
import { unknownName } from "../kit/near";
import { within } from "../kit/time";
import { t } from "../i18n";
import type { Owner } from "./owner";

export type HookName = Exclude<keyof ClientHooks, "settings:save:before">;

interface Entry {
  owner: Owner;
  call: (event: never) => unknown;
  order: number;
}

const DEADLINE = 10_000;
const NONE: readonly Entry[] = [];
const all = shallowReactive(new Map<HookName, readonly Entry[]>());

/** A plugin has stopped something, and says why. */
export class Veto extends ApiError {
  constructor(owner: Owner, reason: string) {
    super(0, "vetoed", t("errors.vetoedBy", { plugin: owner.title, reason }));
  }
}

const NAMES: readonly string[] = [
  "workflow:before-execute",
  "node:render:after",
  "settings:before-save",
  "auth:login",
] satisfies HookName[];

/** Return a name in one spelling: the documents write `save:before` as well as `before-save`. */
const spelled = (name: string) => name.replace(/^hook:client:/, "").replace(/:([a-z-]+):(before|after)$/, ":$2-$1");

/** Return the name that the host uses for a hook. */
export function hookName(name: string): HookName {
  const known = NAMES.find((one) => spelled(one) === spelled(name));
  if (known === undefined) throw unknownName("client hook", name, NAMES);
  return known as HookName;
}

export function addHook(owner: Owner, name: HookName, call: Entry["call"], order = 0): () => void {
  const entry = { owner, call, order };
  const sorted = [...(all.get(name) ?? NONE), entry].sort(
    (a, b) => a.order - b.order || a.owner.name.localeCompare(b.owner.name),
  );
  all.set(name, sorted);
  return () =>
    all.set(
      name,
      (all.get(name) ?? NONE).filter((one) => one !== entry),
    );
}

/** The plugins that a hook of the page asks, in this order. */
export const hookedBy = (name: HookName): string[] => [
  ...new Set((all.get(name) ?? NONE).map((one) => one.owner.name)),
];

type Changed<Name extends HookName> = Omit<ClientHooks[Name], "veto">;

/** What hooks may change of an event; the rest is said anew to each of them. */
const CHANGES: Partial<Record<HookName, string[]>> = {
  "workflow:before-execute": ["document", "inputs"],
  "settings:before-save": ["values"],
};

/**
 * Let plugins change something before it is done, one after the other. Throws a `Veto`. A hook that throws or does not
 * end costs its plugin that one change: its event is a copy.
 */
export async function askHooks<Name extends HookName>(name: Name, payload: Changed<Name>): Promise<Changed<Name>> {
  let event = payload;
  for (const entry of all.get(name) ?? NONE) {
    let reason: string | undefined;
    const copy = { ...clone(event), veto: (why: string) => void (reason = String(why)) };
    try {
      await within(DEADLINE, Promise.resolve(entry.call(copy as never)));
      const changed = Object.entries(copy).filter(([key]) => CHANGES[name]?.includes(key));
      event = { ...event, ...(clone(Object.fromEntries(changed)) as Changed<Name>) };
    } catch (error) {
      entry.owner.fail(`hook ${name}`, error);
    }
    if (reason !== undefined) throw new Veto(entry.owner, reason);
  }
  return event;
}

const clone = <T>(value: T): T => JSON.parse(JSON.stringify(toRaw(value))) as T;

export const PLAIN = { classes: [] as string[], badge: undefined as string | undefined };

/** Return what plugins add to the look of a node. A hook that throws is not called for nodes again. */
export function nodeLook(read: () => Omit<ClientHooks["node:render:after"], "classes" | "badge">): typeof PLAIN {
  const hooks = all.get("node:render:after") ?? NONE;
  if (hooks.length === 0) return PLAIN;
  const node = clone(read());
  const look = { classes: [] as string[], badge: undefined as string | undefined };
  for (const entry of hooks) {
    if (broken.has(entry)) continue;
    const own: ClientHooks["node:render:after"] = { ...node, classes: [] };
    try {
      entry.call(own as never);
      look.classes.push(...Array.from(own.classes, String));
      if (own.badge !== undefined) look.badge = String(own.badge);
    } catch (error) {
      broken.add(entry);
      entry.owner.fail("hook node:render:after", error);
    }
  }
  return look;
}

const broken = new WeakSet<Entry>();
