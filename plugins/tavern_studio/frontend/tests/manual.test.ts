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

test("pictures are there, with words for those who do not see them", () => {
  const shown = Object.entries(manual.pages).flatMap(([page, { en }]) =>
    [...drawn(page, en).matchAll(/<img src="([^"]+)" alt="([^"]*)"/g)].map(([, from, words]) => [from!, words!]),
  );
  expect(shown.length).toBeGreaterThanOrEqual(8);
  for (const [from, words] of shown) {
    expect(from).toMatch(/^(data:image\/svg|.*\/pictures\/.+\.(svg|webp)$)/);
    expect(words!.length, from).toBeGreaterThan(20);
  }
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
  ["trigger workflow by webhook", ["triggers"]],
  ["run a workflow every morning", ["triggers"]],
  ["import SillyTavern character card", ["agents", "knowledge", "importing"]],
  ["use ollama local model", ["models", "get-started"]],
  ["where to put openai api key", ["models"]],
  ["how to back up everything", ["operations"]],
  ["upgrade to a new version", ["upgrading"]],
  ["run behind nginx reverse proxy", ["operations"]],
  ["docker compose example", ["operations", "examples/two-hosts/README"]],
  ["lost my password cannot log in", ["accounts"]],
  ["give a user read only access", ["accounts"]],
  ["write my own custom node", ["nodes"]],
  ["import n8n workflow json", ["importing"]],
  ["load ComfyUI workflow", ["importing"]],
  ["connect an MCP server", ["mcp"]],
  ["chat with my own documents RAG", ["knowledge"]],
  ["prometheus metrics endpoint", ["operations"]],
  ["see execution history and logs", ["workflows", "operations"]],
  ["retry when a step fails", ["workflows"]],
  ["loop over list items", ["workflows"]],
  ["human approval before continuing", ["tools", "agents"]],
  ["cancel a running job", ["workflows", "cli"]],
  ["limit tokens or cost per user", ["models"]],
  ["block plugin from accessing the internet", ["isolation", "security"]],
  ["where are my files stored", ["cli", "architecture", "operations"]],
  ["change port and listen address", ["operations", "cli"]],
  ["single sign on with oidc", ["accounts"]],
  ["reload plugin without restarting", ["cli", "packages", "testing"]],
  ["openai compatible api endpoint", ["openai"]],
  ["install plugin from pypi", ["packages"]],
  ["角色卡怎么导入", ["agents", "knowledge", "importing"]],
  ["如何限制脚本联网", ["scripts"]],
  ["怎么备份和恢复数据", ["operations"]],
  ["定时任务怎么设置", ["triggers"]],
  ["接入本地大模型", ["models", "get-started"]],
  ["在哪里填写 API 密钥", ["models"]],
  ["自定义节点开发教程", ["nodes"]],
  ["忘记密码怎么办", ["accounts"]],
  ["nginx 反向代理配置", ["operations"]],
  ["导入 ComfyUI 工作流", ["importing"]],
  ["知识库问答怎么搭建", ["knowledge"]],
  ["世界书怎么用", ["knowledge"]],
  ["运行失败自动重试", ["workflows"]],
  ["条件分支怎么写", ["workflows"]],
  ["需要人工审核再继续", ["tools", "agents"]],
  ["插件装不上怎么排查", ["packages", "cli"]],
  ["怎么卸载插件", ["packages"]],
  ["多用户权限管理", ["accounts"]],
  ["查看运行日志", ["operations"]],
  ["怎么升级版本", ["upgrading"]],
  ["手机上能用吗", ["panels"]],
  ["监控报警怎么接", ["operations"]],
  ["如何接入 MCP 工具", ["mcp"]],
  ["调用外部 HTTP 接口", ["importing", "scripts", "tools"]],
  ["聊天流式输出", ["openai", "models", "websocket"]],
  ["内存占用太高怎么办", ["operations"]],
  ["数据存在哪个目录", ["cli", "architecture", "operations"]],
  ["没有外网怎么安装", ["packages"]],
  ["一个工作流调用另一个工作流", ["workflows", "tools"]],
  ["界面切换成中文", ["studio"]],
];

test("sixty questions lead to their page within the first three results", () => {
  const search = { en: new ManualSearch(manual, "en"), zh: new ManualSearch(manual, "zh") };
  const missed = QUESTIONS.map(([asked, wanted]) => {
    const found = search[/\p{Script=Han}/u.test(asked) ? "zh" : "en"].find(asked, 3).map((one) => one.page);
    return wanted.some((page) => found.includes(page)) ? "" : `${asked}: ${found.join(", ")}`;
  });
  expect(missed.filter(Boolean)).toEqual([]);
});
