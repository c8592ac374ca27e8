import { onScopeDispose, ref, shallowRef } from "vue";
import { api, ask } from "../api/client";
import { asError } from "../api/resource";

/** A call of a plugin that has ended, an event that it published, or how many of those were lost. */
export interface PluginCall {
  kind: string;
  time?: string;
  name?: string;
  caller?: string;
  ms?: number;
  result?: string;
  error?: string;
  file?: string;
  line?: number;
  count?: number;
}

/** How many calls are shown, the newest. */
const MOST = 200;

/** Yield the name and the data of each server-sent event of a stream. */
export async function* serverEvents(stream: ReadableStream<Uint8Array>): AsyncGenerator<[string, unknown]> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const parts = (text + decoder.decode(read.value, { stream: true })).split("\n\n");
    text = parts.pop() ?? "";
    for (const part of parts) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/s.exec(part) ?? [];
      if (name !== undefined && data !== undefined) yield [name, JSON.parse(data)];
    }
  }
}

/** What a plugin does, from when somebody begins to follow it until they stop or leave. */
export function usePluginCalls() {
  const calls = shallowRef<PluginCall[]>([]);
  const failure = shallowRef<Error>();
  const isFollowing = ref(false);
  let current: AbortController | undefined;

  async function follow(plugin: string): Promise<void> {
    stop();
    const mine = (current = new AbortController());
    calls.value = [];
    failure.value = undefined;
    isFollowing.value = true;
    try {
      const request = { params: { path: { name: "plugins trace" } }, body: { name: plugin } as never };
      const stream = await ask(
        api.POST("/api/commands/{name}", { ...request, parseAs: "stream", signal: mine.signal } as never),
      );
      for await (const [name, data] of serverEvents(stream as ReadableStream<Uint8Array>)) {
        if (mine.signal.aborted) return;
        const { kind, data: entry } = data as { kind?: string; data?: PluginCall };
        if (name === "output" && kind === "entry" && entry) calls.value = [entry, ...calls.value].slice(0, MOST);
        if (name === "error") failure.value = new Error((data as { message: string }).message);
      }
    } catch (thrown) {
      if (!mine.signal.aborted) failure.value = asError(thrown);
    } finally {
      if (current === mine) isFollowing.value = false;
    }
  }

  function stop(): void {
    current?.abort();
    current = undefined;
    isFollowing.value = false;
  }

  onScopeDispose(stop);
  return { calls, failure, isFollowing, follow, stop };
}
