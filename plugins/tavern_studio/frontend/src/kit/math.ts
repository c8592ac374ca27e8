import type MarkdownIt from "markdown-it";
import { shallowRef } from "vue";
import { escaped } from "./highlight";

/** What writes formulas as MathML; it is loaded with the first formula. */
const writer = shallowRef<typeof import("temml").default>();
let isAsked = false;

function formula(tex: string, displayMode: boolean): string {
  if (writer.value === undefined) {
    if (!isAsked) void import("temml").then((found) => (writer.value = found.default));
    isAsked = true;
    return `<code>${escaped(tex)}</code>`;
  }
  return writer.value.renderToString(tex, { displayMode, throwOnError: false, trust: false });
}

/** Where a formula that begins at a place of a text begins and ends inside, and what follows it. */
export function formulaAt(
  text: string,
  at: number,
): { from: number; to: number; end: number; display: boolean } | null {
  const pairs = [
    ["$$", "$$", true],
    ["\\[", "\\]", true],
    ["\\(", "\\)", false],
    ["$", "$", false],
  ] as const;
  const pair = pairs.find(([open]) => text.startsWith(open, at));
  if (pair === undefined) return null;
  const [open, close, display] = pair;
  const from = at + open.length;
  const to = text.indexOf(close, from);
  if (to < 0 || to === from) return null;
  // A single dollar is money unless it stands at its formula: `$x$`, and neither `$ x$` nor `$5 and $6` nor `US$5-$6`.
  if (open === "$") {
    const isMoney = /\s/.test(text[from]!) || /\s/.test(text[to - 1]!) || /[\p{L}\d]/u.test(text[to + 1] ?? "");
    if (isMoney || /[\p{L}\d$]/u.test(text[at - 1] ?? "")) return null;
  }
  return { from, to, end: to + close.length, display };
}

/** Let Markdown have formulas of TeX: `$…$`, `\(…\)`, `$$…$$` and `\[…\]`. */
export function mathIn(markdown: InstanceType<typeof MarkdownIt>): void {
  markdown.inline.ruler.before("escape", "formula", (state, silent) => {
    const found = formulaAt(state.src, state.pos);
    if (found === null || found.end > state.posMax) return false;
    if (!silent) {
      const token = state.push("formula", "math", 0);
      token.content = state.src.slice(found.from, found.to).trim();
      token.hidden = !found.display;
    }
    state.pos = found.end;
    return true;
  });
  markdown.renderer.rules.formula = (tokens, index) => formula(tokens[index]!.content, !tokens[index]!.hidden);
}
