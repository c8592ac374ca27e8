import { beforeEach, expect, test, vi } from "vitest";

beforeEach(() => vi.resetModules());

test("a first visit goes on where it was left, and those of before are none", async () => {
  for (const [kept, state] of [
    [null, "new"],
    ["sample", "sample"],
    ["agent", "agent"],
    ["done", "done"],
    ["yes", "done"],
  ] as const) {
    localStorage.clear();
    if (kept !== null) localStorage.setItem("tavern.visited", kept);
    vi.resetModules();
    expect((await import("../src/home/visit")).visit.value, String(kept)).toBe(state);
  }
  const { setVisit } = await import("../src/home/visit");
  setVisit("agent");
  vi.resetModules();
  expect((await import("../src/home/visit")).visit.value).toBe("agent");
});
