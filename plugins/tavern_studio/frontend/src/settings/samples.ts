import { shallowRef } from "vue";
import type { Sample } from "./figures";

/** What was seen of the host while its figures were looked at; another visit goes on from there. */
export const samples = shallowRef<Sample[]>([]);
