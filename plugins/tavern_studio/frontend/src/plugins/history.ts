import type { Schemas } from "../api/client";

type Entry = Schemas["AuditEntry"];
export type Grant = Pick<Entry, "actor" | "time">;

/** Return who granted each permission last, and when, by the entries of the audit log about a plugin, oldest first. */
export function grantsOf(entries: Entry[]): Map<string, Grant> {
  const found = new Map<string, Grant>();
  for (const { action, actor, time, details } of entries) {
    if (action === "plugin.revoked") found.clear();
    if (action !== "plugin.granted" || !Array.isArray(details?.permissions)) continue;
    for (const name of details.permissions) found.set(String(name), { actor, time });
  }
  return found;
}

/** Return the name of somebody as people read it: `ann` for `user:ann`, and others with what they are. */
export function nameOf(actor: string): string {
  return actor.replace(/^user:/, "");
}
