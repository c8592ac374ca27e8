import { shallowRef } from "vue";
import { page } from "../api/page";
import { begin, culprit, next, type Search } from "./bisect";

/** Which plugins this page loads, and why not all. */
export interface Plan {
  mode: "all" | "safe" | "search";
  /** The plugins that were being loaded when the start before did not finish. */
  suspects: string[];
  search?: Search;
  /** Plugins that this window leaves out. */
  without: string[];
}

const MARK = `tavern.starting.${page.project.id}`;
const CHOICE = `tavern.plugins.${page.project.id}`;
const WINDOW = "tavern.window";
/** Milliseconds after which a start in another window that has left its mark is taken for one that hangs. */
const HANGS = 5000;

interface Mark {
  window: string;
  at: number;
  names: string[];
}

const windowId = sessionStorage.getItem(WINDOW) ?? `${Date.now()}-${Math.random()}`;
sessionStorage.setItem(WINDOW, windowId);

function read<T>(store: Storage, key: string): T | undefined {
  try {
    return (JSON.parse(store.getItem(key) ?? "null") as T | null) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Return what is to be loaded: nothing after a start that did not finish, since the same would happen again. */
export function planOf(
  address: string,
  mark: Mark | undefined,
  choice: Partial<Plan> | undefined,
  now: number,
  me: string,
): Plan {
  const plan: Plan = { mode: "all", suspects: [], without: [], ...choice };
  if (new URL(address).searchParams.get("safe") === "1") return { ...plan, mode: "safe" };
  const hung = mark !== undefined && (mark.window === me || now - mark.at > HANGS) ? mark.names : [];
  return hung.length > 0 ? { ...plan, mode: "safe", suspects: hung } : plan;
}

export const plan = shallowRef(
  planOf(
    location.href,
    read<Mark>(localStorage, MARK),
    read<Partial<Plan>>(sessionStorage, CHOICE),
    Date.now(),
    windowId,
  ),
);
if (plan.value.mode === "safe") localStorage.removeItem(MARK);

const loading = new Set<string>();

/** Leave a mark that a plugin is being loaded; the function that is returned takes it away. */
export function marked(name: string): () => void {
  loading.add(name);
  leave();
  return () => {
    loading.delete(name);
    leave();
  };
}

function leave(): void {
  if (loading.size === 0) localStorage.removeItem(MARK);
  else
    localStorage.setItem(
      MARK,
      JSON.stringify({ window: windowId, at: Date.now(), names: [...loading] } satisfies Mark),
    );
}

// A page that is left in the middle of its start did not hang: one that hangs comes to nothing any more.
addEventListener("pagehide", () => {
  loading.clear();
  leave();
});

/** Whether this window loads a plugin. */
export function isWanted(name: string): boolean {
  const { mode, search, without } = plan.value;
  if (mode === "safe" || without.includes(name)) return false;
  if (search === undefined) return true;
  const found = culprit(search);
  return found === undefined ? search.on.includes(name) : name !== found;
}

/** Load the page again with other plugins. */
function restart(choice: Partial<Plan>): void {
  sessionStorage.setItem(CHOICE, JSON.stringify(choice));
  const address = new URL(location.href);
  address.searchParams.delete("safe");
  if (address.href === location.href) location.reload();
  else location.assign(address); // another query loads the page
}

export const withAll = (): void => restart({});
export const without = (names: string[]): void => restart({ without: names });

/** Begin the search for the plugin that makes trouble. */
export function search(plugins: readonly string[]): void {
  const first = begin(plugins);
  if (first) restart({ mode: "search", search: first });
}

/** Say whether the trouble is there with those that are on. */
export function answer(isThere: boolean): void {
  if (plan.value.search) restart({ mode: "search", search: next(plan.value.search, isThere) });
}
