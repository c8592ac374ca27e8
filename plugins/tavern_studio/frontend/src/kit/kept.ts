import { shallowRef, watch, type ShallowRef } from "vue";

/** A value that this browser keeps under a name. */
export function kept<T>(name: string, initial: T): ShallowRef<T> {
  const value = shallowRef(read(name, initial));
  watch(value, (now) => localStorage.setItem(name, JSON.stringify(now)), { flush: "sync" });
  return value;
}

function read<T>(name: string, initial: T): T {
  try {
    const text = localStorage.getItem(name);
    return text === null ? initial : (JSON.parse(text) as T);
  } catch {
    return initial; // another version of the page wrote it
  }
}
