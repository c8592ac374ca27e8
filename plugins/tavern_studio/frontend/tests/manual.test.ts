import MarkdownIt from "markdown-it";
import { expect, test } from "vitest";
import manual from "virtual:manual";
import { asManual, naming, sectionsOf } from "../src/manual/manual";
import { excerpt, ManualSearch, tokens } from "../src/manual/search";

const drawn = (page: string, text: string) => {
  const markdown = new MarkdownIt();
  asManual(markdown, page, manual.pages);
  return markdown.render(text);
};

test("every page of the index is there, and its heading, in both languages", () => {
  expect(manual.groups.length).toBeLessThanOrEqual(12);
  for (const group of manual.groups) {
    expect(group.title.zh).toMatch(/\p{Script=Han}/u);
    for (const row of group.rows) {
      expect(manual.pages[row.page]?.en, row.page).toMatch(/^# /);
      const there = sectionsOf(row.page, manual.pages[row.page]!.en).map((section) => section.at);
      expect(there, `${row.page}#${row.at}`).toContain(row.at);
      expect(row.title.zh).not.toBe("");
    }
  }
});

test("links lead to routes, to headings that are there, and to no file that is not", () => {
  const ids = new Map(
    Object.entries(manual.pages).map(([page, { en }]) => [page, new Set(sectionsOf(page, en).map((one) => one.at))]),
  );
  for (const [page, texts] of Object.entries(manual.pages)) {
    for (const [, target] of drawn(page, texts.en).matchAll(/href="#\/docs\/([^"]+)"/g)) {
      const [to, at = ""] = decodeURIComponent(target!).split("#");
      expect(ids.get(to!)?.has(at), `${page}: ${target}`).toBe(true);
    }
  }
  expect(drawn("tools", "[a](nodes.md#x) [b](../README.md) [c](#y) [d](https://e.example/)")).toBe(
    '<p><a href="#/docs/nodes#x">a</a> <span>b</span> <a href="#/docs/tools#y">c</a> ' +
      '<a href="https://e.example/" target="_blank" rel="noreferrer">d</a></p>\n',
  );
  expect(drawn("checks/hooks", "[a](../tools.md) [b](description.md)")).toContain('href="#/docs/checks/description"');
});

test("headings are named as links call them, and code has none", () => {
  const nameOf = naming();
  expect(["A `b` c!", "A b c", "什么 是"].map(nameOf)).toEqual(["a-b-c", "a-b-c-1", "什么-是"]);
  const text = "# T\n\none\n\n```yaml\n# no heading\n```\n\n## [U](x.md) v\n\ntwo\n";
  const parts = sectionsOf("p", text);
  expect(parts.map((one) => [one.at, one.trail.join(" › ")])).toEqual([
    ["", "T"],
    ["u-v", "T › U v"],
  ]);
  expect(excerpt(parts[1]!, "two")).toBe("two");
  expect(drawn("p", text)).toContain('<h2 id="u-v">');
});

test("words are those of both scripts", () => {
  expect(tokens("How do I grant permissions?")).toEqual(["grant", "permission"]);
  expect(tokens("如何授予权限")).toEqual(["授予", "予权", "权限"]);
});

/** Questions as people ask them, and the pages of which one is to be among the first three. */
const QUESTIONS: [string, string[]][] = [
  ["how do I install a plugin", ["packages"]],
  ["grant permissions to a plugin", ["permissions", "packages", "security"]],
  ["run behind nginx with https", ["operations"]],
  ["backup and restore", ["operations", "cli", "upgrading"]],
  ["docker container", ["operations", "scripts"]],
  ["add a user with a role", ["accounts", "cli"]],
  ["login with openid connect", ["accounts"]],
  ["API token", ["accounts"]],
  ["use ollama local model", ["models", "get-started"]],
  ["limit how much money a model may cost", ["models"]],
  ["retry when the model server is busy", ["models"]],
  ["start a workflow every night cron", ["triggers"]],
  ["webhook from github", ["triggers"]],
  ["loop over a list in a workflow", ["workflows"]],
  ["write my own node", ["nodes"]],
  ["override a service", ["services"]],
  ["list of all hooks", ["hooks"]],
  ["test my plugin with pytest", ["testing"]],
  ["run python in a sandbox", ["scripts"]],
  ["which hosts may a script reach", ["scripts"]],
  ["connect an MCP server", ["mcp"]],
  ["call agents from the openai client", ["openai"]],
  ["agent to agent protocol", ["a2a"]],
  ["edit a message and fork the conversation", ["memory", "agents", "studio"]],
  ["search a knowledge base", ["knowledge"]],
  ["group chat of several agents", ["worlds"]],
  ["publish a form for other people", ["panels"]],
  ["two hosts sharing postgres", ["scaling"]],
  ["what does error code limit_reached mean", ["errors"]],
  ["replay a run of an agent with another prompt", ["replay"]],
  ["如何安装插件", ["packages"]],
  ["怎么授予权限", ["permissions", "get-started", "concepts"]],
  ["备份", ["operations"]],
  ["用户和角色", ["accounts"]],
  ["登录", ["accounts", "concepts"]],
  ["配置语言模型", ["models"]],
  ["模型的价格和预算", ["models"]],
  ["服务器繁忙时重试", ["models"]],
  ["定时启动工作流", ["triggers"]],
  ["工作流里的循环", ["workflows"]],
  ["编写节点", ["nodes"]],
  ["覆盖服务", ["services"]],
  ["有哪些钩子", ["hooks"]],
  ["测试插件", ["testing"]],
  ["在沙箱里运行脚本", ["scripts", "concepts"]],
  ["智能体的档案", ["agents", "concepts"]],
  ["检索知识库", ["knowledge"]],
  ["多个智能体轮流发言的场景", ["worlds", "concepts"]],
  ["给别人用的面板", ["panels", "concepts"]],
  ["多个宿主共享数据库", ["scaling"]],
  ["错误代码", ["errors"]],
  ["什么是批准", ["concepts", "tools"]],
  ["OpenAI 客户端", ["openai"]],
  ["外部 MCP 服务器成为工具", ["mcp"]],
  ["网页的前端扩展", ["studio-extensions"]],
  ["设置与机密", ["settings"]],
  ["命令行", ["cli"]],
  ["升级与降级", ["upgrading"]],
  ["什么是工作流", ["concepts", "workflows"]],
  ["入门", ["get-started"]],
];

test("sixty questions lead to their page within the first three results", () => {
  const search = { en: new ManualSearch(manual, "en"), zh: new ManualSearch(manual, "zh") };
  const missed = QUESTIONS.map(([asked, wanted]) => {
    const found = search[/\p{Script=Han}/u.test(asked) ? "zh" : "en"].find(asked, 3).map((one) => one.page);
    return wanted.some((page) => found.includes(page)) ? "" : `${asked}: ${found.join(", ")}`;
  });
  expect(missed.filter(Boolean)).toEqual([]);
});
