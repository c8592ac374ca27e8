import { shallowRef, type ShallowRef } from "vue";

/** The workflow that is open in the editor, as far as others than the editor need it. */
interface Current {
  readonly id: string;
  readonly document: ShallowRef<object>;
  readonly selected: ShallowRef<ReadonlySet<string>>;
}

export const current = shallowRef<Current>();
