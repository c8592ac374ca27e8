import { whoIsHere } from "../api/rights";
import type { Extension } from "./extension";
import type { Login } from "./types";

const KEPT = "tavern.login";

/** The login that led to this page, or undefined where it was not the first page since then. */
const fresh: Promise<Login | undefined> = whoIsHere().then((me) => {
  if (me === undefined) return undefined;
  // A session of a user outlives the browser; the operator's token is given to each window.
  const store = me.session ? localStorage : sessionStorage;
  const login = me.session || "operator";
  const isNew = store.getItem(KEPT) !== login;
  store.setItem(KEPT, login);
  return isNew ? { user: me.user ?? "operator" } : undefined;
});

const told = new Set<string>();

/** Call a plugin's hook if somebody has logged in with this page: once, however often the plugin is loaded in it. */
export function onLogin(extension: Extension, hook: (event: Login) => unknown): () => void {
  let isWanted = true;
  void fresh.then((login) => {
    if (login === undefined || !isWanted || told.has(extension.name)) return;
    told.add(extension.name);
    void extension.guard("hook auth:login", hook)({ ...login });
  });
  return () => (isWanted = false);
}
