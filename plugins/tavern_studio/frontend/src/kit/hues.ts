/** The eight hues of `tokens.css` that tell categories, agents and people apart. */
export const HUES = ["blue", "teal", "green", "amber", "red", "pink", "violet", "slate"] as const;
export type Hue = (typeof HUES)[number];

/** A hue that stays the same for a name. */
export function hueOf(name: string): Hue {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)!) >>> 0;
  return HUES[hash % HUES.length]!;
}
