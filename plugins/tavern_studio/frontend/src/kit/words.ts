/** Return those in whose text all words stand. */
export function withWords<T>(all: readonly T[] | undefined, words: string, textOf: (one: T) => string): T[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return (all ?? []).filter((one) => wanted.every((word) => textOf(one).toLowerCase().includes(word)));
}

/** Return a number of bytes as people read it: `312 B`, `4.2 KiB`, `1.5 MiB`. */
export function sizeOf(bytes: number): string {
  return bytes < 1024
    ? `${bytes} B`
    : bytes < 1024 ** 2
      ? `${(bytes / 1024).toFixed(1)} KiB`
      : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}

/** Return a name like a wanted one that is not taken: `upper`, `upper-2`, … */
export function firstFree(wanted: string, isTaken: (name: string) => boolean): string {
  let name = wanted;
  for (let number = 2; isTaken(name); number++) name = `${wanted}-${number}`;
  return name;
}
