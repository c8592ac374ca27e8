import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { asDocument, type WorkflowDocument } from "../src/editor/document";
import { Persistence } from "../src/editor/persistence";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const named = (name: string) => asDocument({ name, nodes: [], edges: [] });

/** A workflow that is drawn, with what was done to it by others. */
function drawn() {
  let document: WorkflowDocument = named("mine");
  const steps: string[] = [];
  const persistence = new Persistence("w", {
    current: () => document,
    replace: (other, label) => {
      document = other;
      steps.push(label);
    },
    rename: (label) => steps.push(`as ${label}`),
    swap: () => undefined,
  });
  return { persistence, steps, name: () => document.name };
}

test("an agent's change is taken as one step", () => {
  const { persistence, steps, name } = drawn();
  expect(persistence.adopt(named("theirs"), "r1", "louder")).toBe(true);
  expect(persistence.adopt(named("theirs"), "r2", "louder still")).toBe(true);
  expect([name(), steps, persistence.conflict.value]).toEqual(["theirs", ["louder", "as louder still"], undefined]);
});

test("an agent's change overwrites nothing unsaved", async () => {
  for (const state of ["unsaved", "saving"] as const) {
    const { persistence, steps, name } = drawn();
    persistence.changed("typed");
    persistence.state.value = state;
    expect(persistence.adopt(named("theirs"), "r1", "louder"), state).toBe(false);
    expect([name(), steps, persistence.conflict.value], state).toEqual(["mine", [], "draft"]);
    await persistence.flush();
    expect(persistence.state.value, "nothing is sent before a person has decided").toBe(state);
  }
});
