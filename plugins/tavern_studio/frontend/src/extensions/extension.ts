import { shallowReactive, shallowRef } from "vue";
import { t } from "../i18n";
import { say, unsay } from "../kit/toasts";
import type { Owner } from "../registry/owner";
import type { Disposer, PermissionRefusal } from "./types";

/** A call that was not granted: which plugin, what, the permission, and how to grant it. */
export class PermissionError extends Error implements PermissionRefusal {
  override readonly name = "PermissionError";
  readonly howToGrant: string;

  constructor(
    readonly plugin: string,
    readonly what: string,
    readonly permission: string,
  ) {
    super(t("extensions.refused", { plugin, what, permission, how: howToGrant(plugin, permission) }));
    this.howToGrant = howToGrant(plugin, permission);
  }
}

const LISTS: [RegExp, string][] = [
  [/^hook:/, "permissions.hooks"],
  [/^ui\.(inject|wrap|override):/, "permissions.ui.$1"],
  [/^services\.(override|use):/, "permissions.services.$1"],
  [/^events\.(subscribe|publish):/, "permissions.events.$1"],
];

function howToGrant(plugin: string, permission: string): string {
  const found = LISTS.find(([pattern]) => pattern.test(permission));
  if (found === undefined) return t("extensions.howToGrant", { plugin });
  const list = permission.match(found[0])![0].replace(found[0], found[1]);
  const name = list === "permissions.hooks" ? permission : permission.replace(found[0], "");
  return t("extensions.howToAsk", { plugin, list, name });
}

/** Something that went wrong in a plugin's front end. */
export interface Mistake {
  where: string;
  message: string;
  time: number;
  count: number;
}

interface Held {
  permission: string | undefined;
  dispose: Disposer;
}

const MOST = 20;

/** The front end of one plugin in this page: what it may do, what it did, and what went wrong. */
export class Extension implements Owner {
  readonly state = shallowReactive<{ status: "loading" | "active" | "failed"; milliseconds?: number; reason?: string }>(
    {
      status: "loading",
    },
  );
  readonly mistakes = shallowRef<Mistake[]>([]);
  /** What it called that will go, for its author. */
  readonly deprecated = shallowRef<string[]>([]);
  /** Its values of its own options, by whole key. */
  readonly config = shallowRef<Record<string, unknown>>({});
  private readonly held = new Set<Held>();
  private isOpen = true;

  constructor(
    readonly name: string,
    readonly title: string,
    readonly version: string,
    /** What the addresses of its files begin with. */
    readonly base: string,
    private granted: ReadonlySet<string>,
  ) {}

  /** Return which of these permissions the plugin has, the first being the one to ask for; throw if it has none of them. */
  need(what: string, ...permissions: string[]): string | undefined {
    if (!this.isOpen) throw new Error(t("extensions.unloaded", { plugin: this.name, what }));
    const granted = permissions.find((one) => this.granted.has(one));
    if (permissions.length > 0 && granted === undefined)
      throw new PermissionError(this.name, what, permissions[0] ?? "");
    return granted;
  }

  get permissions(): ReadonlySet<string> {
    return this.granted;
  }

  /** Hold what is to be taken back when the plugin goes, or when the permission does. */
  hold(permission: string | undefined, dispose: Disposer): Disposer {
    const one: Held = { permission, dispose };
    this.held.add(one);
    if (!this.isOpen) this.release(one);
    return () => this.release(one);
  }

  /** Take back what is no longer granted. */
  follow(granted: ReadonlySet<string>): void {
    this.granted = granted;
    for (const one of [...this.held].reverse())
      if (one.permission !== undefined && !granted.has(one.permission)) this.release(one);
  }

  /** Take everything back. */
  close(): void {
    this.isOpen = false;
    unsay(`plugin ${this.name}`);
    for (const one of [...this.held].reverse()) this.release(one);
  }

  private release(one: Held): void {
    if (!this.held.delete(one)) return;
    try {
      one.dispose();
    } catch (error) {
      this.fail("dispose", error);
    }
  }

  fail(where: string, error: unknown): void {
    const message = String((error as Error | undefined)?.message ?? error);
    const same = this.mistakes.value.find((one) => one.where === where && one.message === message);
    const others = this.mistakes.value.filter((one) => one !== same);
    this.mistakes.value = [{ where, message, time: Date.now(), count: (same?.count ?? 0) + 1 }, ...others].slice(
      0,
      MOST,
    );
    console.error(`plugin ${this.name}, ${where}:`, error);
    // Where it stands by itself, its badge says so.
    if (!others.some((one) => one.where === where) && !same && !/^(outlet|panel|page) /.test(where))
      say(t("extensions.mistake", { plugin: this.title, where, message }), "bad", `plugin ${this.name}`);
  }

  owns(error: unknown): boolean {
    return String((error as Error | undefined)?.stack ?? "").includes(this.base);
  }

  /** Let the author know of a call that will go; who uses the plugin need not know. */
  deprecate(what: string, instead: string): void {
    const text = `${what} → ${instead}`;
    if (this.deprecated.value.includes(text)) return;
    this.deprecated.value = [...this.deprecated.value, text];
    console.warn(`plugin ${this.name}: ${what} is deprecated, use ${instead}`);
  }

  /** Return a function that calls one of the plugin's, whose mistakes, now or in a promise, are the plugin's. */
  guard<Values extends unknown[]>(where: string, call: (...values: Values) => unknown): (...values: Values) => unknown {
    return (...values) => {
      try {
        const result = call(...values);
        return result instanceof Promise ? result.catch((error: unknown) => this.fail(where, error)) : result;
      } catch (error) {
        return this.fail(where, error);
      }
    };
  }
}

/** Return whose code an error came out of: of the extensions on its stack, the one nearest to where it was made. */
export function ownerOf(extensions: Iterable<Extension>, error: unknown): Extension | undefined {
  const found = [...extensions].filter((one) => one.owns(error));
  const depth = (one: Extension) => (error as Error).stack!.indexOf(one.base);
  return found.sort((a, b) => depth(a) - depth(b))[0];
}
