/** What is asked of the audit log; texts are looked for anywhere unless they have a `*`. */
export interface AuditFilters {
  actor: string;
  action: string;
  subject: string;
  plugin: string;
  /** Moments as the browser's fields give them, in the time of this place: `2026-01-31T08:30`. */
  since: string;
  until: string;
}

export const NO_FILTERS: AuditFilters = { actor: "", action: "", subject: "", plugin: "", since: "", until: "" };
export const PAGE = 100;

/** Return the query of `GET /api/audit`, for entries before a number where one is given. */
export function auditQuery(filters: AuditFilters, before?: number): Record<string, string> {
  const query: Record<string, string> = { limit: String(PAGE) };
  for (const key of ["actor", "action", "subject", "plugin"] as const) {
    const text = filters[key].trim();
    if (text) query[key] = text.includes("*") ? text : `*${text}*`;
  }
  for (const key of ["since", "until"] as const) if (filters[key]) query[key] = new Date(filters[key]).toISOString();
  if (before !== undefined) query.before = String(before);
  return query;
}
