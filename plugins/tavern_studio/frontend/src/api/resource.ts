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
 * An answer that comes after a later one is dropped, and so is what was asked for before `reload` was called, since that may
 * be for something else; what was there stays while the next one is waited for.
 */
export function useResource<T>(load: () => Promise<T>, events: string[] = []): Resource<T> {
  const data = shallowRef<T>();
  const error = ref<ApiError>();
  const waiting = ref(false);
  let begun = 0;
  let shown = 0;

  async function look(): Promise<void> {
    const mine = ++begun;
    waiting.value = true;
    const show = (found?: T, problem?: ApiError) => {
      if (mine < shown) return;
      shown = mine;
      if (problem === undefined) data.value = found;
      error.value = problem;
      waiting.value = mine < begun;
    };
    try {
      show(await load());
    } catch (thrown) {
      show(undefined, asError(thrown));
    }
  }

  function reload(): Promise<void> {
    shown = begun + 1;
    return look();
  }

  let due: ReturnType<typeof setTimeout> | undefined;
  const soon = () => {
    clearTimeout(due);
    due = setTimeout(() => void look(), 50); // events come in crowds
  };
  const stops = [listen(events, soon), onMissed(soon)];
  onScopeDispose(() => {
    clearTimeout(due);
    stops.forEach((stop) => stop());
  });
  void look();
  return { data, error, waiting, reload };
}

export function asError(thrown: unknown): ApiError {
  return thrown instanceof ApiError ? thrown : new ApiError(0, "page_error", String(thrown));
}
