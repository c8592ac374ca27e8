import { i18n } from "../i18n";

/** Return a moment in the zone of this browser, as its reader writes dates. */
export function momentOf(moment: string | null | undefined): string {
  if (!moment) return "";
  const style = { dateStyle: "medium", timeStyle: "medium" } as const;
  return new Date(moment).toLocaleString(i18n.global.locale.value, style);
}
