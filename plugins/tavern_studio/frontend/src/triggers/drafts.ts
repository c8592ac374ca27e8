import type { Schemas } from "../api/client";
import { t } from "../i18n";
import { firstFree } from "../kit/words";

export type Trigger = Schemas["Trigger"];
export type TriggerState = Schemas["TriggerState"];

export const KINDS = ["schedule", "webhook", "file", "event", "run"] as const;
export type Kind = (typeof KINDS)[number];
export type Schedule = "cron" | "everySeconds" | "at";

/** What the form shows of a trigger: texts, as they are typed. */
export interface Draft {
  id: string;
  name: string;
  description: string;
  kind: string;
  starts: "workflow" | "agent";
  target: string;
  message: string;
  inputs: string;
  take: string;
  missed: "skip" | "once" | "all";
  overlap: "skip" | "queue" | "parallel";
  maxFailures: number;
  schedule: Schedule;
  /** Everything that belongs to the kind, by its key; objects as JSON. */
  config: Record<string, string>;
}

/** The fields of each kind beside the choices, with what stands there first. */
export const FIELDS: Record<Kind, Record<string, string>> = {
  schedule: { cron: "0 7 * * 1-5", timeZone: "UTC", everySeconds: "3600", at: "" },
  webhook: { auth: "path", answer: "accepted", seconds: "30" },
  file: { pattern: "*", seconds: "2" },
  event: { type: "", where: "{}" },
  run: { workflow: "", statuses: "complete" },
};

const NUMBERS = ["everySeconds", "seconds"];

/** The zone of this browser. */
export const zoneHere = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** Return the form of a new trigger. */
export function newDraft(): Draft {
  return {
    ...{ id: "", name: "", description: "", kind: "schedule", starts: "workflow", target: "", message: "" },
    ...{ inputs: "{}", take: "{}", missed: "once", overlap: "skip", maxFailures: 5, schedule: "cron" },
    config: { ...FIELDS.schedule, timeZone: zoneHere() },
  };
}

/** Return the form of a trigger that is there. */
export function draftOf(id: string, trigger: Trigger): Draft {
  const config = Object.fromEntries(
    Object.entries(trigger.config ?? {}).map(([key, value]) => [
      key,
      key === "at" ? localTime(String(value)) : textOf(value),
    ]),
  );
  const own = FIELDS[trigger.kind as Kind] ?? { config: JSON.stringify(trigger.config ?? {}, null, 2) };
  const schedule = (["cron", "everySeconds", "at"] as const).find((key) => config[key]) ?? "cron";
  return {
    ...{ id, name: trigger.name, description: trigger.description ?? "", kind: trigger.kind },
    ...{ starts: trigger.agent ? "agent" : "workflow", target: trigger.agent ?? trigger.workflow ?? "" },
    ...{ message: trigger.message ?? "", inputs: JSON.stringify(trigger.inputs ?? {}, null, 2) },
    ...{ take: JSON.stringify(trigger.take ?? {}, null, 2), missed: trigger.missed ?? "once" },
    ...{ overlap: trigger.overlap ?? "skip", maxFailures: trigger.maxFailures ?? 5, schedule },
    config: { ...own, ...(trigger.kind in FIELDS ? config : {}) },
  };
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
}

/** Return a moment as an input of the browser has it, in the zone that is here. */
function localTime(moment: string): string {
  const date = new Date(moment);
  return Number.isNaN(date.getTime())
    ? ""
    : new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Return the `config` that a form means. Throws where what is to be JSON is none. */
export function configOf(draft: Draft): Record<string, unknown> {
  const { config, kind } = draft;
  if (!(kind in FIELDS)) return JSON.parse(config.config || "{}") as Record<string, unknown>;
  const keys =
    kind === "schedule"
      ? [draft.schedule, ...(draft.schedule === "cron" ? ["timeZone"] : [])]
      : Object.keys(FIELDS[kind as Kind]);
  const filled = keys.filter((key) => (config[key] ?? "").trim() !== "");
  return Object.fromEntries(filled.map((key) => [key, valueOf(key, config[key]!)]));
}

function valueOf(key: string, text: string): unknown {
  if (NUMBERS.includes(key)) return Number(text);
  if (key === "where") return JSON.parse(text) as unknown;
  if (key === "at") return new Date(text).toISOString();
  if (key === "statuses") return text.split(",").map((one) => one.trim());
  return text.trim();
}

/** Return the trigger that a form means, leaving alone what it does not show. Throws where JSON is none. */
export function triggerOf(draft: Draft, before?: Trigger): Trigger {
  const isAgent = draft.starts === "agent";
  return {
    ...before,
    ...{ name: draft.name.trim() || draft.id, description: draft.description, kind: draft.kind },
    ...{
      config: configOf(draft),
      missed: draft.missed,
      overlap: draft.overlap,
      maxFailures: Number(draft.maxFailures),
    },
    ...{ workflow: isAgent ? null : draft.target, agent: isAgent ? draft.target : null },
    ...{ message: isAgent ? draft.message : "", inputs: isAgent ? {} : JSON.parse(draft.inputs || "{}") },
    take: isAgent ? {} : JSON.parse(draft.take || "{}"),
  };
}

/** Return an id that a name makes and that no other trigger has; none without a name. */
export function idOf(name: string, taken: string[] = []): string {
  if (!name.trim()) return "";
  const plain =
    name
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 60) || "trigger";
  return firstFree(plain, (id) => taken.includes(id));
}

/** Return what a kind is called. */
export const kindName = (kind: string) => (kind in FIELDS ? t(`triggers.kinds.${kind}`) : kind);
