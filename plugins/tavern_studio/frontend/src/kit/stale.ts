import type { Router } from "vue-router";
import { asError } from "../api/resource";

/** Return a function whose calls wait for the ones before: what is asked for twice is done with what came of the first time. */
export function inTurn<Values extends unknown[], T>(
  what: (...values: Values) => Promise<T>,
): (...values: Values) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (...values) => {
    const done = last.then(() => what(...values));
    last = done.catch(() => undefined); // who called is told of it
    return done;
  };
}

/**
 * Save something. Where that is refused because it has changed, and what is there is what was to be saved, it was saved before
 * and the answer never came: return what was read.
 */
export async function savedOnce<T>(
  save: () => Promise<T>,
  read: () => Promise<T>,
  isSaved: (found: T) => boolean,
): Promise<T> {
  try {
    return await save();
  } catch (thrown) {
    if (asError(thrown).status !== 412) throw thrown;
    const found = await read();
    if (!isSaved(found)) throw thrown;
    return found;
  }
}

let left = 0;

/** Count where the person goes, from the moment that they do: what is there may have to be loaded first. */
export function noteLeaving(router: Router): void {
  router.beforeEach(() => void left++);
}

/** Note where the person is; what is returned tells later whether they are there still: a person who has gone is not taken back. */
export function navigationGuard(): () => boolean {
  const then = left;
  return () => left === then;
}
