import { shallowRef } from "vue";
import type { Sample } from "./figures";

/** What was seen of the host while its figures were looked at; the next visit continues with it. */
export const samples = shallowRef<Sample[]>([]);
