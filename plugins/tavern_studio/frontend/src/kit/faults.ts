import { onMounted, onScopeDispose, shallowRef, watch, type Ref, type ShallowRef } from "vue";
import { onSuccess, type ApiError } from "../api/client";
import { connection } from "../api/socket";
import { isMessage, t } from "../i18n";
import { titleOf } from "../registry/known";

/** Something that went wrong, shown until it is closed, or until its cause is mended. */
export interface Fault {
  id: number;
  error: ApiError;
}

interface Place {
  faults: ShallowRef<readonly Fault[]>;
  /** The part of the page whose mistakes stand here. */
  scope: Element | null | undefined;
}

const MOST = 3;
let next = 1;

/** The places that are on the page, in the order in which they came: a view before what is in it. */
const places = new Set<Place>();
let touched: EventTarget | null = null;

for (const type of ["pointerdown", "keydown"])
  addEventListener(
    type,
    // Keys that nothing has the focus for go to the body; they are for what was touched before.
    (event) => void (event.target !== document.body && (touched = event.target)),
    { capture: true, passive: true },
  );

/** Say of an error what people read: a veto in the words of its plugin, with the plugin's name. */
export function wordsOf(error: ApiError): string {
  const { reason } = error.details;
  if (error.code === "vetoed" && error.plugin && typeof reason === "string")
    return t("errors.vetoedBy", { plugin: titleOf(error.plugin), reason });
  return error.message || hintOf(error) || t("kit.failed");
}

/** What can be done about an error, where that follows from its code. */
export function hintOf(error: ApiError): string {
  const key = `errors.${error.code}`;
  return isMessage(key) ? t(key) : "";
}

/** Whether what was wrong is right again: the server answers, or has done what it refused. */
export function isMended(error: ApiError, by: { operation?: string; isConnected?: boolean }): boolean {
  if (error.code === "unreachable") return by.isConnected === true || by.operation !== undefined;
  return by.operation !== undefined && by.operation === error.operation;
}

/** Where mistakes of what is begun now will stand: the innermost place around what was touched, what is around that, the latest. */
export function placesNow(target: EventTarget | null = touched): Place[] {
  const around = [...places].filter(({ scope }) => target instanceof Node && scope?.contains(target));
  around.sort((a, b) => (a.scope?.contains(b.scope ?? null) ? 1 : -1));
  return [...around, ...[...places].filter((one) => !around.includes(one)).reverse()];
}

/** Show an error in the first of some places that is still there, for some milliseconds if given; false where none is. */
export function place(error: ApiError, wanted: readonly Place[], stays?: number): boolean {
  const found = wanted.find((one) => places.has(one));
  if (found === undefined) return false;
  const others = found.faults.value.filter(
    (one) => one.error.operation !== error.operation || one.error.message !== error.message,
  );
  const fault = { id: next++, error };
  found.faults.value = [...others, fault].slice(-MOST);
  const leave = () => (found.faults.value = found.faults.value.filter((one) => one !== fault));
  if (stays !== undefined) setTimeout(leave, stays);
  return true;
}

/** Take away what some list holds and is mended. */
export function whenMended(drop: (isGone: (error: ApiError) => boolean) => void): void {
  onSuccess((operation) => drop((error) => isMended(error, { operation })));
  watch(connection, (now) => now === "open" && drop((error) => isMended(error, { isConnected: true })));
}

whenMended((isGone) => {
  for (const { faults } of places)
    if (faults.value.some(({ error }) => isGone(error)))
      faults.value = faults.value.filter(({ error }) => !isGone(error));
});

/** Be a place for the mistakes of what surrounds an element: what is marked `data-faults`, else what it stands in. */
export function useFaultPlace(root: Ref<Element | undefined | null>): Place {
  const mine: Place = { faults: shallowRef([]), scope: undefined };
  places.add(mine);
  onMounted(() => (mine.scope = root.value?.closest("[data-faults]") ?? root.value?.parentElement));
  onScopeDispose(() => places.delete(mine));
  return mine;
}
