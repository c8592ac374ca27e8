import { ApiError } from "../api/client";
import { page } from "../api/page";
import type { Disposer, ExtensionApi } from "../extensions/types";

/** What of a plugin's interface the code in a frame gets to, by messages. */
export type Asked = Pick<
  ExtensionApi,
  "plugin" | "apiVersion" | "locale" | "ui" | "commands" | "getConfig" | "onConfigChange"
>;

/** A front end that runs in frames, as `GET /api/plugins` has it. */
export interface SandboxedFrontend {
  entryUrl?: string | null;
  styleUrls?: string[];
  commands?: { id: string; title: string; keys?: string | null }[];
  panels?: { id: string; title: string; icon?: string | null; place?: "left" | "bottom" | "right" }[];
}

/** The longest message that is read, in characters; how many come within a second; how much is asked for at a time. */
export const MOST = { length: 1 << 16, perSecond: 100, waiting: 32, held: 32 };

type Method = (values: unknown[]) => unknown;

/** How the page follows a frame: `failed` is the code's own mistake, `closed` that the frame is to be taken away. */
export interface Watch {
  ready(message: string): void;
  failed(message: string): void;
  mistake(message: string): void;
  closed(why: "flood" | "message"): void;
}

/** Answer the messages of a frame until what is returned is called. What comes is anybody's: it is read as text, and only
 * what is known is done. */
export function answer(port: MessagePort, api: Asked, declared: SandboxedFrontend["commands"], watch: Watch): Disposer {
  const held: Disposer[] = [];
  const hold = (dispose: Disposer) => void held.push(dispose);
  const send = (message: object) => port.postMessage(JSON.stringify(message));
  const mayHold = () => {
    if (held.length >= MOST.held) throw new RangeError(`at most ${MOST.held} listeners and commands`);
  };
  const methods: Record<string, Method> = {
    getConfig: ([option]) => api.getConfig(text(option)),
    onConfigChange([option, id]) {
      mayHold();
      hold(api.onConfigChange(text(option), (value) => send({ type: "config", id: Number(id), value })));
    },
    addCommand([wanted]) {
      mayHold();
      const command = declared?.find(({ id }) => id === wanted);
      if (command === undefined) throw new TypeError(`the manifest declares no command ${JSON.stringify(wanted)}`);
      const { id, title, keys } = command;
      hold(api.commands.add({ id, title, keys: keys ?? undefined, run: () => send({ type: "command", id }) }));
    },
    request: ([path, method, body]) => request(api.plugin.name, path, method, body),
  };
  const stop = () => {
    port.onmessage = null;
    port.close();
    held.splice(0).forEach((dispose) => dispose());
  };
  const isFlood = counter();
  let waiting = 0;
  port.onmessage = async ({ data }: MessageEvent<unknown>) => {
    const message = isFlood() ? "flood" : read(data);
    if (typeof message === "string") return (stop(), watch.closed(message));
    if (message.type !== "ask") return watch[message.type](message.text);
    const { id, method, values } = message;
    waiting += 1;
    try {
      if (waiting > MOST.waiting) throw new RangeError(`at most ${MOST.waiting} questions at a time`);
      if (!Object.hasOwn(methods, method)) throw new TypeError(`there is no ${method}`);
      send({ type: "answer", id, value: (await methods[method]?.(values)) ?? null });
    } catch (error) {
      const { name, message: why } = error as Error;
      send({ type: "answer", id, name, error: why || name });
    } finally {
      waiting -= 1;
    }
  };
  return stop;
}

type Read =
  | { type: "ready" | "failed" | "mistake"; text: string }
  | { type: "ask"; id: number; method: string; values: unknown[] };

function read(data: unknown): Read | "message" {
  if (typeof data !== "string" || data.length > MOST.length) return "message";
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    return "message";
  }
  if (typeof value !== "object" || value === null) return "message";
  const { type, id, method, values, message } = value as Record<string, unknown>;
  if (type === "ready" || type === "failed" || type === "mistake") return { type, text: text(message).slice(0, 500) };
  const isQuestion = type === "ask" && Number.isSafeInteger(id) && typeof method === "string" && Array.isArray(values);
  return isQuestion ? { type: "ask", id: id as number, method, values: values as unknown[] } : "message";
}

const text = (value: unknown) => (typeof value === "string" ? value : "");

/** Return what says, each time that something happens, whether that was too often. */
function counter(): () => boolean {
  let count = 0;
  let since = performance.now();
  return () => {
    const now = performance.now();
    if (now - since > 1000) [count, since] = [0, now];
    return ++count > MOST.perSecond;
  };
}

/** Return what a route of the plugin's own answers, which begins with `/api/x/NAME/`, however it is spelled. */
export async function request(plugin: string, path: unknown, method: unknown, body: unknown): Promise<unknown> {
  const own = new URL(`${page.base}/api/x/${plugin}/`, location.href);
  const url = new URL(text(path).replace(/^\/+/, ""), own);
  if (!url.href.startsWith(own.href) || /%2f|%5c/i.test(url.pathname))
    throw new TypeError("a path of the plugin's own was expected");
  if (method !== "GET" && method !== "POST") throw new TypeError("GET or POST was expected");
  url.searchParams.set("projectId", page.project.id);
  const sent =
    method === "POST" ? { body: JSON.stringify(body ?? null), headers: { "Content-Type": "application/json" } } : {};
  const response = await fetch(url, { method, redirect: "error", ...sent });
  if (!response.ok)
    throw new ApiError(response.status, "", `${url.pathname.slice(own.pathname.length)} answered ${response.status}`);
  const answered = await response.text();
  return response.headers.get("Content-Type")?.startsWith("application/json")
    ? (JSON.parse(answered) as unknown)
    : answered;
}

/** Return the text of a file of the plugin, as the server has it under its hash. */
export async function fileText(address: string): Promise<string> {
  const response = await fetch(address);
  if (!response.ok) throw new ApiError(response.status, "", `${address} answered ${response.status}`);
  return response.text();
}

/** Return the tokens of the page as they are now, and what a frame begins with. */
export function look(): string {
  const names = new Set<string>();
  for (const sheet of document.styleSheets) {
    for (const rule of readable(sheet)) {
      if (rule instanceof CSSStyleRule && rule.selectorText.startsWith(":root")) {
        for (const name of rule.style) if (name.startsWith("--")) names.add(name);
      }
    }
  }
  const style = getComputedStyle(document.documentElement);
  const tokens = [...names].map((name) => `${name}:${style.getPropertyValue(name)};`).join("");
  return `:root{color-scheme:${style.colorScheme};${tokens}}body{margin:0;font:var(--body);color:var(--text);background:var(--panel)}`;
}

function readable(sheet: CSSStyleSheet): Iterable<CSSRule> {
  try {
    return sheet.cssRules;
  } catch {
    return []; // of another origin, such as a development server's
  }
}
