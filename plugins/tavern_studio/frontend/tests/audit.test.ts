import { expect, test } from "vitest";
import { auditQuery, NO_FILTERS } from "../src/settings/audit";

test("a text is looked for anywhere, and a pattern taken as it is", () => {
  const query = auditQuery({ ...NO_FILTERS, actor: " ann ", action: "plugin.*" });
  expect(query).toEqual({ limit: "100", actor: "*ann*", action: "plugin.*" });
});

test("moments are those of this place, and a page ends before the last one", () => {
  const query = auditQuery({ ...NO_FILTERS, since: "2026-01-31T08:30" }, 17);
  expect(query).toEqual({ limit: "100", since: new Date(2026, 0, 31, 8, 30).toISOString(), before: "17" });
});
