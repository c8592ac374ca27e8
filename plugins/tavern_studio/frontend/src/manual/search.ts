import MiniSearch from "minisearch";
import { inLanguage, sectionsOf, type Manual, type Section } from "./manual";

const CJK = /\p{Script=Han}+/gu;
const WORDS = /[\p{L}\p{N}_]+/gu;
/** Words that say nothing about what somebody looks for. */
const EMPTY = new Set(
  "a an and are as at be by can cannot do does for from get have how i if in is it its may me my of on one or so that the their them there they this to up use what when where which who why will with you your".split(
    " ",
  ),
);
const EMPTY_HAN = /怎么样?|如何|什么|哪里|哪个|哪些|可以|能不能|一个|[的了吗呢是在我你让把被和与或给从到]/gu;

/** The words of a text: those of alphabets without their usual endings, and of Chinese each two characters beside each other. */
export function tokens(text: string): string[] {
  const found: string[] = [];
  for (const [han] of text.replace(EMPTY_HAN, " ").matchAll(CJK)) {
    if (han.length === 1) found.push(han);
    for (let index = 0; index + 1 < han.length; index++) found.push(han.slice(index, index + 2));
  }
  for (const [word] of text.toLowerCase().replace(CJK, " ").matchAll(WORDS)) {
    if (!EMPTY.has(word)) found.push(stem(word));
  }
  return found;
}

const STEMS = new Map<string, string>();

/** What the forms of an English word have in common: "node" and "nodes", "store" and "stored", "setting" and "settings". */
function stem(word: string): string {
  let root = STEMS.get(word);
  if (root === undefined) {
    root = word;
    if (word.length > 3) {
      const one = word.replace(/ies$/, "y").replace(/(?<![isu])s$/, "");
      const verb = one.replace(/^(.*[aeiouy].+)(?:ing|ed)$/, "$1");
      root = verb.replace(/([^aeiouls])\1$/, "$1").replace(/(?<=...)e$/, "");
    }
    STEMS.set(word, root);
  }
  return root;
}

/** Finds parts of pages by words. What the index says of a page in any language leads to it, too. */
export class ManualSearch {
  private readonly index = new MiniSearch<{ id: number; title: string; about: string; path: string; text: string }>({
    fields: ["title", "about", "path", "text"],
    tokenize: tokens,
    processTerm: (term) => term,
    searchOptions: {
      boost: { title: 4, about: 5, path: 2 },
      prefix: (term) => term.length > 3,
      fuzzy: (term) => (term.length > 5 ? 0.15 : false),
    },
  });
  private readonly sections: Section[] = [];

  constructor(manual: Manual, language: string) {
    const about = new Map<string, string>();
    for (const row of manual.groups.flatMap((group) => group.rows)) {
      const said = [row.title, row.about].flatMap((text) => [text.en, text.zh]).join(" ");
      about.set(`${row.page}#${row.at}`, said);
    }
    for (const [page, texts] of Object.entries(manual.pages))
      this.sections.push(...sectionsOf(page, inLanguage(texts, language)));
    this.index.addAll(
      this.sections.map(({ page, at, trail, text }, id) => {
        const row = about.get(`${page}#${at}`) ?? "";
        return { id, title: trail.at(-1)!, about: row, path: trail.slice(0, -1).join(" "), text };
      }),
    );
  }

  /** Return the parts that fit best, the best first, of each page the best alone. */
  find(words: string, most = 20): Section[] {
    const found = new Map<string, Section>();
    for (const one of this.index.search(words)) {
      const section = this.sections[one.id as number]!;
      if (!found.has(section.page)) found.set(section.page, section);
      if (found.size === most) break;
    }
    return [...found.values()];
  }
}

/** Return what of a text is shown below a result: around the first of the words. */
export function excerpt(section: Section, words: string, length = 160): string {
  const text = section.text
    .replace(/```[\s\S]*?```|[`*|#>]|\]\([^)]*\)|\[|<[^>]*>|-{3,}/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  const places = words.toLowerCase().match(/[\p{Script=Han}]{2}|[\p{L}\p{N}_]{3,}/gu) ?? [];
  const first = places.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...(first.length ? first : [0])) - 40);
  return `${start ? "…" : ""}${text.slice(start, start + length)}${text.length > start + length ? "…" : ""}`;
}
