import { createI18n } from "vue-i18n";

/** Messages of one part of the page, in both languages: each folder has its own in `messages.ts`. */
export interface Messages {
  en: Record<string, unknown>;
  zh: Record<string, unknown>;
}

const found = import.meta.glob<{ default: Messages }>("../**/messages.ts", { eager: true });

function merged(language: keyof Messages): Record<string, unknown> {
  return Object.assign({}, ...Object.values(found).map((one) => one.default[language])) as Record<string, unknown>;
}

const KEPT = "tavern.language";

export function preferredLanguage(): keyof Messages {
  const kept = localStorage.getItem(KEPT);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.languages
    .find((one) => /^(en|zh)\b/i.test(one))
    ?.toLowerCase()
    .startsWith("zh")
    ? "zh"
    : "en";
}

export const i18n = createI18n({
  legacy: false,
  locale: preferredLanguage(),
  fallbackLocale: "en",
  messages: { en: merged("en"), zh: merged("zh") } as never,
});

export function setLanguage(language: keyof Messages): void {
  localStorage.setItem(KEPT, language);
  i18n.global.locale.value = language;
  document.documentElement.lang = language;
}

// The library's own types follow every message key, which is too deep for the compiler.
const global = i18n.global as unknown as {
  t(key: string, values: Record<string, unknown>): string;
  te(key: string, locale?: string): boolean;
};

/** Translate outside of components. */
export const t = (key: string, values: Record<string, unknown> = {}): string => global.t(key, values);

/** Whether there is a message of that key. */
export const isMessage = (key: string): boolean => global.te(key, "en");
