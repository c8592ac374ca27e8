import { t } from "../i18n";
import { meetings, type Meeting } from "../registry/layers";
import { extensions } from "./loader";

/** Return in words what becomes of several plugins at one place. */
export function wordsOf({ target, kind, plugins, used }: Meeting): string {
  const key = kind === "wrap" ? "wraps" : used ? "used" : "undecided";
  return t(`extensions.report.${key}`, { target, plugins: plugins.join(", "), used: used ?? "" });
}

/** Return what about a plugin's front end waits for somebody: it was not loaded, or is not used before a choice. */
export function concernOf(plugin: string): string | undefined {
  const state = extensions.get(plugin)?.state;
  if (state?.status === "failed") return t("extensions.report.failed", { reason: state.reason ?? "" });
  const open = meetings.value.find((one) => one.kind === "override" && !one.used && one.plugins.includes(plugin));
  return open && wordsOf(open);
}
