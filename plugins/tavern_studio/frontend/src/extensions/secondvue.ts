import { ownerOf, type Extension } from "./extension";

// Each copy of Vue adds itself to this list when its module is evaluated (Vue 3.4 and later): its `ref` and the page's
// would know nothing of each other, so that a component of it would be drawn once and never again.
const LIST = "__VUE_INSTANCE_SETTERS__";

/** Call a function when a plugin brings a copy of Vue of its own; the stack of that moment says which plugin. */
export function watchForSecondVue(owners: () => Iterable<Extension>, found: (extension: Extension) => void): void {
  const setters = (globalThis as unknown as Record<string, unknown[]>)[LIST];
  if (setters === undefined) return;
  setters.push = (...added: unknown[]) => {
    const owner = ownerOf(owners(), new Error());
    if (owner === undefined) return Array.prototype.push.apply(setters, added);
    queueMicrotask(() => found(owner));
    return setters.length;
  };
}
