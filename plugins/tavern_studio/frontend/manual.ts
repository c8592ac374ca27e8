// The documentation as the page reads it: the groups of its index, and the text of every page that the index leads to.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const DOCS = new URL("../../../docs/", import.meta.url).pathname;
const PICTURE = /!\[([^\]]*)\]\(([^):]+\.(?:svg|webp))\)/g;
const ROW = /^\| \[(?<title>.+?)\]\((?<target>[^)]+)\) \| (?<about>.*) \|$/;

/** The groups of an index, each with its rows. */
function groupsOf(
  index: string,
): { title: string; rows: { title: string; page: string; at: string; about: string }[] }[] {
  const groups = [];
  for (const part of readFileSync(join(DOCS, index), "utf8").split(/^## /m).slice(1)) {
    const [title, ...lines] = part.split("\n");
    const rows = lines.flatMap((line) => {
      const found = ROW.exec(line)?.groups;
      if (found === undefined) return [];
      const [file, at = ""] = found.target!.split("#");
      const page = normalize(join(dirname(index), file!)).replace(/^zh\//, "");
      return page.startsWith("..")
        ? []
        : [{ title: found.title!, page: page.replace(/\.md$/, ""), at, about: found.about! }];
    });
    groups.push({ title: title!.trim(), rows });
  }
  return groups;
}

function textOf(page: string): string {
  const text = readFileSync(join(DOCS, `${page}.md`), "utf8");
  return text
    .replace(/^<!--[\s\S]*?-->\n/gm, "")
    .replace(/^(English|\[English\]).*简体中文.*\n\n?/m, "")
    .replace(PICTURE, (_, about: string, file: string) => `![${about}](picture:${join(dirname(page), file)})`);
}

/** All that the page's manual shows, as a module: its pictures become files of their own beside the bundle. */
export function manual(): string {
  const [english, chinese] = ["README.md", "zh/README.md"].map(groupsOf);
  const groups = english!.map((group, index) => ({
    title: { en: group.title, zh: chinese![index]!.title },
    rows: group.rows.map((row, number) => {
      const same = chinese![index]!.rows[number]!;
      return { ...row, title: { en: row.title, zh: same.title }, about: { en: row.about, zh: same.about } };
    }),
  }));
  const named = new Set(groups.flatMap((group) => group.rows.map((row) => row.page)));
  for (const row of groups.flatMap((group) => group.rows))
    for (const [, file] of row.about.en.matchAll(/\]\(([^)#]+)\.md/g)) named.add(file!);
  const pages = [...named].sort().map((page) => {
    const zh = existsSync(join(DOCS, "zh", `${page}.md`)) ? { zh: textOf(`zh/${page}`) } : {};
    return [page, { en: textOf(page), ...zh }] as const;
  });
  const text = JSON.stringify({ groups, pages: Object.fromEntries(pages) });
  const pictures = [...new Set([...text.matchAll(/\(picture:([^)\s]+)\)/g)].map(([, file]) => file!))];
  const imports = pictures.map((file, at) => `import p${at} from ${JSON.stringify(`${join(DOCS, file)}?url`)};`);
  const addresses = pictures.map((file, at) => `${JSON.stringify(file)}: p${at}`).join(", ");
  return `${imports.join("\n")}
const pictures = { ${addresses} };
const placed = (_, one) =>
  typeof one === "string" ? one.replace(/\\(picture:([^)\\s]+)\\)/g, (_, file) => \`(\${pictures[file]})\`) : one;
export default JSON.parse(${JSON.stringify(text)}, placed);`;
}
