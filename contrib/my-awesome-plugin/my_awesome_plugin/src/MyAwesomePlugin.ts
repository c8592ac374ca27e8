// Says of a text how long it is and which of its words come most often: JSON on stdin, JSON on stdout.
// It is TypeScript without types, so that every Node.js runs it, those too that do not take types away.

const { readFileSync } = require("node:fs");

const { input } = JSON.parse(readFileSync(0, "utf8"));
const words = Array.from(new Intl.Segmenter(undefined, { granularity: "word" }).segment(input))
  .filter((part) => part.isWordLike)
  .map((part) => part.segment.toLowerCase());

const counts = new Map();
for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 5);

console.error(`::progress 1 counted ${words.length} words`);
console.log(
  JSON.stringify({
    characters: [...input].length,
    words: words.length,
    lines: input === "" ? 0 : input.split("\n").length,
    most: most.map(([word, count]) => ({ word, count })),
  }),
);
