import { posix } from "node:path";
import { expect, test } from "vitest";

type Sources = Record<string, string>;

const sources = import.meta.glob<string>("../src/**/*.{ts,vue}", { query: "?raw", import: "default", eager: true });

/** `from "./x"`, `import "./x"`, `import("./x")` and `glob("./*\/x")`, for types as well. */
const RELATIVE = /\b(?:from|import|import\(|glob(?:<.*>)?\()\s*"(\.[^"]+)"/g;

function importsOf(all: Sources, path: string): string[] {
  return [...(all[path] ?? "").matchAll(RELATIVE)].flatMap(([, named]) => {
    const wanted = posix.join(posix.dirname(path), named ?? "");
    if (wanted.includes("*")) return Object.keys(all).filter((one) => globbed(wanted).test(one));
    return [wanted, `${wanted}.ts`, `${wanted}/index.ts`].filter((one) => one in all);
  });
}

function globbed(glob: string): RegExp {
  const stars = (star: string) => (star === "*" ? "[^/]*" : "(?:.*/)?");
  return new RegExp(`^${glob.replaceAll(".", "\\.").replace(/\*\*\/|\*/g, stars)}$`);
}

/** Return a chain of modules in which each imports the next one, and the last one is the first. */
function circleIn(all: Sources): string[] | undefined {
  const done = new Set<string>();
  const walk = (path: string, chain: string[]): string[] | undefined => {
    if (chain.includes(path)) return [...chain.slice(chain.indexOf(path)), path];
    if (done.has(path)) return undefined;
    for (const next of importsOf(all, path)) {
      const circle = walk(next, [...chain, path]);
      if (circle !== undefined) return circle;
    }
    done.add(path);
    return undefined;
  };
  for (const path of Object.keys(all)) {
    const circle = walk(path, []);
    if (circle !== undefined) return circle;
  }
  return undefined;
}

test("no module imports itself by way of others", () => {
  expect(importsOf(sources, "../src/app/IconRail.vue")).toContain("../src/app/views.ts");
  expect(circleIn(sources)).toBeUndefined();
});

test.each([
  ["a type", 'import type { B } from "../b/index";'],
  ["several lines", 'export {\n  one,\n} from "../b";'],
  ["a module that is loaded later", 'const B = later(() => import("../b"));'],
  ["all of a kind", 'import.meta.glob<{ one: B[] }>("../*/index.ts", { eager: true });'],
])("a circle is found by the import of %s", (_, text) => {
  const all = {
    "src/a/a.vue": `<script setup>\n${text}\n</script>`,
    "src/b/index.ts": 'import "../c.ts";\n',
    "src/c.ts": 'import A from "./a/a.vue";',
  };
  expect(circleIn(all)).toEqual(["src/a/a.vue", "src/b/index.ts", "src/c.ts", "src/a/a.vue"]);
});
