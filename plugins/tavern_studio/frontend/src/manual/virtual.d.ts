declare module "virtual:manual" {
  /** A text in the languages that it is there in; English always is. */
  interface InLanguages {
    en: string;
    zh?: string;
  }

  /** A row of the index: a page, or the heading `at` of one. */
  interface Row {
    page: string;
    at: string;
    title: InLanguages;
    about: InLanguages;
  }

  /** The documentation: its index, and the Markdown of each page; see `manual.ts` beside `vite.config.ts`. */
  const manual: { groups: { title: InLanguages; rows: Row[] }[]; pages: Record<string, InLanguages> };
  export default manual;
}
