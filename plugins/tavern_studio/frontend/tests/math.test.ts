import MarkdownIt from "markdown-it";
import { expect, test } from "vitest";
import { formulaAt, mathIn } from "../src/kit/math";

const inside = (text: string, at = 0) => {
  const found = formulaAt(text, at);
  return found && [text.slice(found.from, found.to), found.display];
};

test("formulas are found in each of their forms", () => {
  expect(inside("$x^2$ is")).toEqual(["x^2", false]);
  expect(inside("\\(a_1\\)")).toEqual(["a_1", false]);
  expect(inside("$$\n\\int x\n$$")).toEqual(["\n\\int x\n", true]);
  expect(inside("\\[y\\]")).toEqual(["y", true]);
});

test("money is no formula, nor is what does not end", () => {
  for (const text of ["$5 and $6", "$5-$6", "$ x$", "$", "$$", "$$$$", "\\(a"]) expect(inside(text), text).toBeNull();
  expect(inside("US$5$", 2)).toBeNull();
});

test("what is in a formula is neither emphasis nor HTML, and code has none", async () => {
  const markdown = new MarkdownIt({ html: false }).use(mathIn);
  const render = (text: string) => markdown.render(text);
  render("$a_1 b_2$");
  await import("temml");
  await Promise.resolve();
  expect(render("$a_1 b_2$")).toContain("<math");
  expect(render("$a_1 b_2$")).not.toContain("<em>");
  expect(render("`$x$`")).toContain("<code>$x$</code>");
  expect(render("$<img src=x onerror=alert(1)>$")).not.toContain("<img");
  expect(render("$\\href{javascript:alert(1)}{x}$")).not.toContain("javascript:");
  expect(render("**bold** $x$ and $y$").match(/<math/g)).toHaveLength(2);
});
