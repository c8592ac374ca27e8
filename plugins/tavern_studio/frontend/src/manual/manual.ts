import type MarkdownIt from "markdown-it";

export type Manual = typeof import("virtual:manual").default;

/** A part of a page: from one heading to the next. */
export interface Section {
  page: string;
  at: string;
  /** The headings above it, that of the page first, its own last. */
  trail: string[];
  text: string;
}

export const inLanguage = (text: { en: string; zh?: string }, language: string): string =>
  (language === "zh" && text.zh) || text.en;

/** Where in the page's routes a heading of a page stands. */
export const addressOf = (page: string, at = ""): string => `/docs/${page}${at ? `#${at}` : ""}`;

/** What is left of a heading without its marks: the words that people see. */
function plain(heading: string): string {
  return heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[`*]/g, "");
}

/** Return what gives each heading of one page the name by which links find it, as GitHub does. */
export function naming(): (heading: string) => string {
  const taken = new Map<string, number>();
  return (heading) => {
    const slug = plain(heading)
      .toLowerCase()
      .replace(/[^\p{L}\p{M}\p{N}_\- ]/gu, "")
      .replaceAll(" ", "-");
    const times = taken.get(slug) ?? 0;
    taken.set(slug, times + 1);
    return times ? `${slug}-${times}` : slug;
  };
}

/** Return the parts of a page; what looks like a heading in code is none. */
export function sectionsOf(page: string, markdown: string): Section[] {
  const found: Section[] = [];
  const above: { level: number; title: string }[] = [];
  const nameOf = naming();
  let inCode = false;
  for (const line of markdown.split("\n")) {
    if (/^\s*(```|~~~)/.test(line)) inCode = !inCode;
    const heading = inCode ? null : /^(#{1,4}) (.+)$/.exec(line);
    if (heading) {
      const level = heading[1]!.length;
      while (above.length && above.at(-1)!.level >= level) above.pop();
      above.push({ level, title: plain(heading[2]!) });
      const at = nameOf(heading[2]!);
      found.push({ page, at: level === 1 ? "" : at, trail: above.map((one) => one.title), text: "" });
    } else if (found.length) {
      found.at(-1)!.text += `${line}\n`;
    }
  }
  return found;
}

/** Let a renderer give headings their names, lead links between pages to routes, and show those to other files as text. */
export function asManual(
  markdown: InstanceType<typeof MarkdownIt>,
  page: string,
  pages: Record<string, unknown>,
): void {
  const { rules } = markdown.renderer;
  markdown.core.ruler.push("manual", ({ tokens }) => {
    const nameOf = naming();
    tokens.forEach((token, index) => {
      if (token.type === "heading_open") token.attrSet("id", nameOf(tokens[index + 1]!.content));
    });
  });
  rules.link_open = (tokens, index, options, _, self) => {
    const token = tokens[index]!;
    const target = String(token.attrGet("href"));
    if (/^[a-z]+:/.test(target)) {
      token.attrSet("target", "_blank");
      token.attrSet("rel", "noreferrer");
      return self.renderToken(tokens, index, options);
    }
    const [file, at] = target.split("#");
    const named = file ? new URL(file, `x:/${page}`).pathname.slice(1).replace(/^zh\//, "").replace(/\.md$/, "") : page;
    const isThere = named in pages;
    token.meta = { isThere };
    if (isThere) token.attrSet("href", `#${addressOf(named, at)}`);
    return isThere ? self.renderToken(tokens, index, options) : "<span>";
  };
  rules.link_close = (tokens, index) => {
    let open = index;
    while (tokens[open]!.type !== "link_open") open--;
    return tokens[open]!.meta?.isThere === false ? "</span>" : "</a>";
  };
}
