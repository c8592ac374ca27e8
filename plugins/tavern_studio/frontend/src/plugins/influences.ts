import type { Schemas } from "../api/client";
import type { Hue } from "../kit/hues";

export type Role = Schemas["Involvement"]["role"] | "page";

/** What a run goes through, in this order: hooks and services of the host, as `GET /api/why/{subject}` names them. */
export const STAGES = [
  "hook:tavern_before_register_node",
  "hook:tavern_before_execute",
  "service:executionEngine",
  "hook:tavern_before_llm_request",
  "service:llm",
  "hook:tavern_after_llm_response",
  "hook:tavern_before_tool_call",
  "service:toolManager",
  "hook:tavern_after_tool_call",
  "hook:tavern_after_execute",
] as const;
/** The hook of front ends that comes before all of these. */
export const PAGE_STAGE = "hook:client:workflow:before-execute";

export const HUES: Record<Role, Hue> = { provides: "slate", implements: "violet", overrides: "red", page: "blue" };

/** A plugin's part in a stage; `order` counts from 1 within the stage. */
export interface Influence {
  plugin: string;
  stage: string;
  role: Role;
  order: number;
  where: string;
  granted: string;
}

/** Return the parts of plugins in what a run goes through, in its order; first those of front ends, which are asked in the page. */
export function influencesOf(explained: readonly Schemas["Explanation"][], inPage: readonly string[]): Influence[] {
  const found = explained.flatMap(({ subject, involved }) =>
    (involved ?? []).map(({ plugin, role, where = "", granted = "" }, at) => ({
      ...{ plugin, role: role, where, granted },
      ...{ stage: subject, order: at + 1 },
    })),
  );
  const page = inPage.map((plugin, at) => ({
    ...{ plugin, role: "page" as const, where: "", granted: "" },
    ...{ stage: PAGE_STAGE, order: at + 1 },
  }));
  return [...page, ...found];
}

/** The plugins of some parts: those that were added first, each group in the order of a run. */
export function pluginsOf(influences: readonly Influence[], firstParty: ReadonlySet<string>): string[] {
  const all = [...new Set(influences.map((one) => one.plugin))];
  return [...all.filter((one) => !firstParty.has(one)), ...all.filter((one) => firstParty.has(one))];
}

/** The stages that are drawn: the host's services, and the hooks that somebody implements, in the order of a run. */
export function stagesOf(influences: readonly Influence[]): string[] {
  const used = new Set(influences.map((one) => one.stage));
  return [PAGE_STAGE, ...STAGES].filter((one) => used.has(one));
}

export const ROW = 36;
export const BOX = 26;

/** The middle of each of some boxes one below the other, of a column that is as high as the higher one of both. */
export function middles(count: number, height: number): number[] {
  return Array.from({ length: count }, (_, at) => (height * (at + 0.5)) / Math.max(1, count));
}

/** A line from one box to another. */
export function curve(x1: number, y1: number, x2: number, y2: number): string {
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
