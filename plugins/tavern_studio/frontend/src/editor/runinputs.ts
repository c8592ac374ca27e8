import { shallowReactive } from "vue";
import { page } from "../api/page";
import type { Slot, WorkflowDocument } from "./document";
import type { Session } from "./session";

const known = shallowReactive(new Map<string, Record<string, unknown>>());
const keyOf = (id: string) => `tavern.inputs.${page.project.id}.${id}`;

/** What was last entered for the inputs of a workflow, in this browser; inputs without a value have their defaults. */
export function inputsKept(session: Session): Record<string, unknown> {
  let values = known.get(session.id);
  if (values === undefined) {
    values = JSON.parse(localStorage.getItem(keyOf(session.id)) ?? "{}") as Record<string, unknown>;
    known.set(session.id, values);
  }
  const slots = session.document.value.interfaceInputs ?? {};
  return Object.fromEntries(Object.entries(values).filter(([key]) => key in slots));
}

/** The inputs of a workflow that need a value and have none. */
export function missingInputs(document: WorkflowDocument, values: Record<string, unknown>): string[] {
  const isMissing = ([key, slot]: [string, Slot]) => slot.required && (values[key] ?? slot.config?.default) == null;
  return Object.entries(document.interfaceInputs ?? {})
    .filter(isMissing)
    .map(([key]) => key);
}

export function keepInput(session: Session, key: string, value: unknown): void {
  const { [key]: _old, ...rest } = inputsKept(session);
  const values = value === undefined ? rest : { ...rest, [key]: value };
  known.set(session.id, values);
  localStorage.setItem(keyOf(session.id), JSON.stringify(values));
}
