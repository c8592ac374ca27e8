import { shallowRef } from "vue";
import { ApiError } from "../api/client";
import { asError } from "../api/resource";
import { place, placesNow, whenMended, wordsOf } from "./faults";

/** Something that is said in the corner, since it has no place of its own on the page. */
interface Toast {
  id: number;
  text: string;
  kind: "good" | "bad";
  /** Whose it is, to take it back once that is gone. */
  about?: string;
  error?: ApiError;
}

export const toasts = shallowRef<Toast[]>([]);
let next = 1;

/** Milliseconds for which a toast stays: what was done, and why something was not, which is gone with the gesture. */
const STAYS = { good: 4000, bad: 10_000 };

/** Say something in the corner for a while; with `about`, what went wrong stays until it is closed or `unsay` is called. */
export function say(text: string, kind: Toast["kind"] = "good", about?: string): void {
  const toast = { id: next++, text, kind, about };
  show(toast);
  if (about === undefined) setTimeout(() => closeToast(toast.id), STAYS[kind]);
}

/** Say why something cannot be done, where it was tried; that is gone with the gesture, so it leaves by itself. */
export function refuse(text: string): void {
  if (!place(new ApiError(0, "refused", text), placesNow(), STAYS.bad)) say(text, "bad");
}

/** Take back what was said about something. */
export function unsay(about: string): void {
  toasts.value = toasts.value.filter((one) => one.about !== about);
}

function show(toast: Toast): void {
  const others = toasts.value.filter((one) => one.text !== toast.text); // once is enough
  toasts.value = [...others.slice(-3), toast];
}

export function closeToast(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

whenMended((isGone) => {
  if (toasts.value.some(({ error }) => error && isGone(error)))
    toasts.value = toasts.value.filter(({ error }) => !error || !isGone(error));
});

/**
 * Do something; say it where it fails: in the dialogue, panel or view in which it was begun, else in the corner until it is
 * closed or mended. Returns what it gives, or undefined.
 */
export async function attempt<T>(what: () => Promise<T>, done?: string): Promise<T | undefined> {
  const places = placesNow();
  try {
    const result = await what();
    if (done !== undefined) say(done);
    return result;
  } catch (thrown) {
    const error = asError(thrown);
    if (!place(error, places)) show({ id: next++, text: wordsOf(error), kind: "bad", error });
    return undefined;
  }
}
