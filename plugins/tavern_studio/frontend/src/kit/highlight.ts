import { shallowReactive } from "vue";

type Highlight = (code: string) => string;

/** The names that code blocks give to languages whose colours the page has, and those names that are the same. */
const LANGUAGES: Record<string, string> = {
  json: "json",
  jsonc: "json",
  python: "python",
  py: "python",
  javascript: "javascript",
  js: "javascript",
  jsx: "javascript",
  typescript: "typescript",
  ts: "typescript",
  markdown: "markdown",
  md: "markdown",
};
const ready = shallowReactive(new Map<string, Highlight>());
const asked = new Set<string>();

/** Escape what has a meaning in HTML. */
export function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]!);
}

/**
 * Code as HTML with a class for each kind of word; plain while the colours of its language are being loaded, after which what
 * shows it is drawn again, and where there are none.
 */
export function highlighted(code: string, name: string): string {
  const language = LANGUAGES[name.toLowerCase()];
  if (language === undefined) return escaped(code);
  if (!asked.has(language)) {
    asked.add(language);
    void load(language);
  }
  return ready.get(language)?.(code) ?? escaped(code);
}

async function load(name: string): Promise<void> {
  const [{ LanguageSupport }, { classHighlighter, highlightCode }, { languageOf }] = await Promise.all([
    import("@codemirror/language"),
    import("@lezer/highlight"),
    import("./codelanguages"),
  ]);
  const support = await languageOf(name);
  if (!(support instanceof LanguageSupport)) return;
  ready.set(name, (code) => {
    let html = "";
    const put = (text: string, classes: string) =>
      (html += classes ? `<span class="${classes}">${escaped(text)}</span>` : escaped(text));
    highlightCode(code, support.language.parser.parse(code), classHighlighter, put, () => (html += "\n"));
    return html;
  });
}
