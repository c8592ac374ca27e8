/** Return those in whose text all words stand. */
export function withWords<T>(all: readonly T[] | undefined, words: string, textOf: (one: T) => string): T[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return (all ?? []).filter((one) => wanted.every((word) => textOf(one).toLowerCase().includes(word)));
}
