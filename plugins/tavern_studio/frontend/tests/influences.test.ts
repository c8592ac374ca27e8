import { expect, test } from "vitest";
import { influencesOf, middles, PAGE_STAGE, pluginsOf, stagesOf } from "../src/plugins/influences";

const explained = [
  {
    subject: "service:executionEngine",
    answer: "",
    facts: [],
    involved: [{ plugin: "tavern-engine", role: "provides" }],
  },
  {
    subject: "hook:tavern_before_execute",
    answer: "",
    facts: [],
    involved: [
      { plugin: "acme", role: "implements", where: "acme/__init__.py:3", granted: "granted" },
      { plugin: "zoo", role: "implements" },
    ],
  },
  { subject: "hook:tavern_after_execute", answer: "", facts: [], involved: [] },
] as never;

test("who changes what stands in the order of a run, those of the page and those that were added first", () => {
  const found = influencesOf(explained, ["zoo"]);
  expect(found.map(({ plugin, stage, role, order }) => [plugin, stage, role, order])).toEqual([
    ["zoo", PAGE_STAGE, "page", 1],
    ["tavern-engine", "service:executionEngine", "provides", 1],
    ["acme", "hook:tavern_before_execute", "implements", 1],
    ["zoo", "hook:tavern_before_execute", "implements", 2],
  ]);
  expect(stagesOf(found)).toEqual([PAGE_STAGE, "hook:tavern_before_execute", "service:executionEngine"]);
  expect(pluginsOf(found, new Set(["tavern-engine"]))).toEqual(["zoo", "acme", "tavern-engine"]);
  expect(middles(2, 100)).toEqual([25, 75]);
});
