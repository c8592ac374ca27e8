import { expect, test } from "vitest";
import type { Messages } from "../src/i18n";

const found = import.meta.glob<{ default: Messages }>("../src/**/messages.ts", { eager: true });

function keys(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) => keys(inner, `${path}.${key}`));
}

test("every message is there in both languages", () => {
  for (const [file, { default: messages }] of Object.entries(found)) {
    expect(keys(messages.zh), file).toEqual(keys(messages.en));
  }
});
