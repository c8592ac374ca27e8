import { shallowRef } from "vue";
import { asError } from "../api/resource";
import { t } from "../i18n";

interface Toast {
  id: number;
  text: string;
  kind: "good" | "bad";
}

export const toasts = shallowRef<Toast[]>([]);
let next = 1;

/** Say something in the corner for a while; what went wrong stays until it is closed. */
export function say(text: string, kind: Toast["kind"] = "good"): void {
  const toast = { id: next++, text, kind };
  toasts.value = [...toasts.value.slice(-3), toast];
  if (kind === "good") setTimeout(() => closeToast(toast.id), 4000);
}

export function closeToast(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/** Do something; say it where it fails. Returns what it gives, or undefined. */
export async function attempt<T>(what: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await what();
    if (done !== undefined) say(done);
    return result;
  } catch (thrown) {
    const error = asError(thrown);
    say(error.message || t(`errors.${error.code}`), "bad");
    return undefined;
  }
}
