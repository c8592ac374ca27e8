import type { Schemas } from "../api/client";
import { isMessage, t } from "../i18n";

/** Say how much work in flight was settled, by kinds; nothing where there was none. */
export function settledText(settled: Schemas["SettledWork"][] = []): string {
  const counts = settled.map(({ kind, cancelled = 0, stopped = 0 }) => {
    const key = `kit.stop.of.${kind.replaceAll(" ", "_")}`;
    const said = Object.entries({ cancelled, stopped }).filter(([, n]) => n > 0);
    return `${isMessage(key) ? t(key) : kind}: ${said.map(([how, n]) => t(`kit.stop.${how}`, { n })).join(", ")}`;
  });
  return counts.length ? t("kit.stop.done", { counts: counts.join("; ") }) : "";
}
