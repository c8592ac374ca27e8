import access from "virtual:access";
import { computed, shallowRef } from "vue";
import { api, ask, type Schemas } from "./client";
import { page } from "./page";
import type { paths } from "./schema";
import { onMissed, setHearing } from "./socket";

/** A request by the path that its route was registered with: `POST /api/plugins/{name}/grant`. */
export type Operation = `${"GET" | "POST" | "PUT" | "PATCH" | "DELETE"} ${Extract<keyof paths, string>}`;
type Identity = Pick<Schemas["Identity"], "permissions" | "projects" | "session"> & { user?: string };

/** What everybody who is logged in may read, whatever their role; as the server has it. */
const OWN = ["/api/me", "/api/me/*", "/api/logout", "/api/logout/*", "/api/tokens", "/api/tokens/*", "/api/projects"];
const EVERYTHING: Identity = { permissions: ["read", "create", "operate"], session: "" };

/** Whether a role may do this in a project; the same decision as the server's, which makes it again. */
export function isPermitted(me: Identity, operation: string, project: string): boolean {
  const path = operation.slice(operation.indexOf(" ") + 1);
  const needed = access[operation] ?? "read";
  if (needed === "public") return true;
  if (me.session && needed === "read" && OWN.some((pattern) => fits(path, pattern))) return true;
  return (me.projects?.[project] ?? me.permissions ?? []).some((one) => {
    const colon = one.indexOf(":");
    return colon < 0 ? one === needed : one.slice(0, colon) === needed && fits(path, one.slice(colon + 1));
  });
}

/** Whether a path fits a pattern: `*` is any text, `?` any character. */
function fits(path: string, pattern: string): boolean {
  const parts = pattern
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replaceAll("*", ".*")
    .replaceAll("?", ".");
  return new RegExp(`^${parts}$`, "s").test(path);
}

const me = shallowRef<Identity>();
let asked: Promise<void> | undefined;

async function learn(): Promise<void> {
  try {
    me.value = await ask(api.GET("/api/me"));
    setHearing(isPermitted(me.value, "GET /ws", page.project.id));
  } catch (error) {
    // Without the plugin of the accounts there are no users, and whoever is here is the operator.
    if ((error as { status?: number }).status === 404) me.value = EVERYTHING;
  }
}

onMissed(() => void (asked = learn()));

/** Whether the person at this page may do all of this: what would be refused is not offered. */
export function may(...operations: Operation[]): boolean {
  asked ??= learn();
  const known = me.value;
  return known !== undefined && operations.every((one) => isPermitted(known, one, page.project.id));
}

/** Return who is at this page, or undefined where the server does not say. */
export async function whoIsHere(): Promise<Identity | undefined> {
  await (asked ??= learn());
  return me.value;
}

/** Whether there are users, who log in. */
export const hasUsers = computed(() => me.value !== undefined && me.value !== EVERYTHING);

/** Whether a user is here; who has the server's token is the operator, and no user. */
export const isUser = computed(() => Boolean(me.value?.session));

// What is not permitted is not sent; a refusal that comes in spite of it says that the role has changed.
api.use({
  async onRequest({ request, schemaPath }) {
    if (schemaPath === "/api/me") return undefined;
    await (asked ??= learn());
    const operation = `${request.method} ${schemaPath}`;
    if (me.value === undefined || isPermitted(me.value, operation, page.project.id)) return undefined;
    const body = { code: "forbidden", title: "Forbidden", detail: "" };
    return new Response(JSON.stringify(body), { status: 403, headers: { "Content-Type": "application/problem+json" } });
  },
  onResponse({ response, schemaPath }) {
    if (response.status === 403 && schemaPath !== "/api/me") asked = learn();
    return undefined;
  },
});
