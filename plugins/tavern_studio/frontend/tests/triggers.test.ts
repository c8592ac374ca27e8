import { expect, test } from "vitest";
import { configOf, draftOf, idOf, newDraft, triggerOf, type Trigger } from "../src/triggers/drafts";

test("a trigger that is opened and saved is as it was, with what the form does not show", () => {
  const triggers: Trigger[] = [
    { name: "a", kind: "schedule", config: { cron: "0 7 * * *", timeZone: "Europe/Berlin" }, workflow: "w" },
    { name: "b", kind: "schedule", config: { everySeconds: 60 }, workflow: "w", inputs: { n: 1 } },
    { name: "c", kind: "webhook", config: { auth: "github", answer: "result", seconds: 5 }, workflow: "w" },
    {
      name: "d",
      kind: "event",
      config: { type: "ALARM", where: { "/kind": "failures" } },
      agent: "k",
      message: "Look.",
    },
    { name: "e", kind: "run", config: { workflow: "x", statuses: ["error", "interrupted"] }, workflow: "w" },
    { name: "f", kind: "acme:mail", config: { folder: "in" }, workflow: "w", take: { text: "/subject" } },
    { name: "g", kind: "schedule", config: { at: "2027-01-31T06:00:00.000Z" }, workflow: "w" },
  ].map((one) => ({ maxConcurrent: 3, ...one }));
  for (const trigger of triggers) expect(triggerOf(draftOf("t", trigger), trigger)).toMatchObject(trigger);
});

test("a new one is a schedule in the zone of the browser, and takes its id from its name", () => {
  const draft = { ...newDraft(), id: "x", name: "Every morning!", target: "greeting" };
  expect(configOf(draft)).toEqual({
    cron: "0 7 * * 1-5",
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  });
  expect(triggerOf(draft)).toMatchObject({ name: "Every morning!", workflow: "greeting", agent: null });
  expect([idOf("Every morning!"), idOf("Every morning!", ["every-morning"]), idOf("每天"), idOf(" ")]).toEqual([
    ...["every-morning", "every-morning-2", "trigger", ""],
  ]);
});
