/** How many letters have to be put in, taken away or replaced to make one word of another (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let down = 1; down <= a.length; down++) {
    const next = [down];
    for (let across = 1; across <= b.length; across++) {
      const replaced = row[across - 1]! + (a[down - 1] === b[across - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[across]! + 1, next[across - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** Return the name that somebody who wrote another one means, or undefined where none is near. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const ranked = names
    .map((one) => ({ one, far: distance(name.toLowerCase(), one.toLowerCase()) }))
    .sort((a, b) => a.far - b.far);
  return ranked.find(({ one, far }) => far <= Math.max(name.length, one.length) * 0.4)?.one;
}

/** Return an error that there is nothing of a name, with the name that is meant or those that there are. */
export function unknownName(what: string, name: string, names: readonly string[]): TypeError {
  const near = nearest(name, names);
  const hint = near === undefined ? `; there are ${names.join(", ")}` : ` (did you mean ${JSON.stringify(near)}?)`;
  return new TypeError(`there is no ${what} ${JSON.stringify(name)}${hint}`);
}
