import { onScopeDispose, ref, shallowRef, type Ref, type ShallowRef } from "vue";
import { ApiError } from "./client";
import { listen, onMissed } from "./socket";

/** Something that is asked of the server and shown. */
export interface Resource<T> {
  data: ShallowRef<T | undefined>;
  error: Ref<ApiError | undefined>;
  waiting: Ref<boolean>;
  reload: () => Promise<void>;
}

/**
 * Ask for something now, whenever one of the events comes, and after messages were missed.
 * An answer that is overtaken by a later one is dropped; what was there stays while the next one is waited for.
 */
export function useResource<T>(load: () => Promise<T>, events: string[] = []): Resource<T> {
  const data = shallowRef<T>();
  const error = ref<ApiError>();
  const waiting = ref(false);
  let turn = 0;

  async function reload(): Promise<void> {
    const mine = ++turn;
    waiting.value = true;
    try {
      const found = await load();
      if (mine === turn) [data.value, error.value] = [found, undefined];
    } catch (thrown) {
      if (mine === turn) error.value = asError(thrown);
    } finally {
      if (mine === turn) waiting.value = false;
    }
  }

  let due: ReturnType<typeof setTimeout> | undefined;
  const soon = () => {
    clearTimeout(due);
    due = setTimeout(() => void reload(), 50); // events come in crowds
  };
  const stops = [listen(events, soon), onMissed(soon)];
  onScopeDispose(() => {
    clearTimeout(due);
    stops.forEach((stop) => stop());
  });
  void reload();
  return { data, error, waiting, reload };
}

export function asError(thrown: unknown): ApiError {
  return thrown instanceof ApiError ? thrown : new ApiError(0, "page_error", String(thrown));
}
