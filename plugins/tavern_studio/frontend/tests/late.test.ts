import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { effectScope } from "vue";
import { asDocument } from "../src/editor/document";

/** What was asked of the server, to be answered when the test likes. */
interface Asked {
  what: string;
  answer(body: unknown, status?: number): Promise<unknown>;
  fail(): Promise<unknown>;
}

let asked: Asked[] = [];
let socket: { onopen?: () => void; onmessage?: (event: { data: string }) => void };

const settle = (milliseconds = 20) => vi.advanceTimersByTimeAsync(milliseconds);
const hear = (type: string, payload: object) => socket.onmessage?.({ data: JSON.stringify({ type, payload }) });
const called = (what: string) => asked.filter((one) => one.what === what);

beforeEach(async () => {
  asked = [];
  vi.resetModules();
  vi.useFakeTimers();
  vi.stubGlobal("fetch", (request: Request) => {
    return new Promise((resolve, reject) => {
      asked.push({
        what: `${request.method} ${new URL(request.url).pathname}`,
        answer(body, status = 200) {
          resolve(
            new Response(JSON.stringify(body), {
              status,
              headers: { "Content-Type": "application/json", ETag: '"file"' },
            }),
          );
          return settle();
        },
        fail() {
          reject(new TypeError("no answer"));
          return settle();
        },
      });
    });
  });
  const Line = () => (socket = { send: () => undefined } as typeof socket);
  vi.stubGlobal(
    "WebSocket",
    Object.assign(
      function () {
        return Line();
      },
      { OPEN: 1 },
    ),
  );
  (await import("../src/api/socket")).connect();
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const run = (status: string) => ({ id: "r", workflowId: "w", status, nodes: {}, outputs: {} });

test("a run is not shown as it was before it ended", async () => {
  const { Running } = await import("../src/editor/running");
  const running = new Running("w");
  void running.open("r");
  await settle();
  hear("EXECUTION_STATUS_UPDATE", { promptId: "r", status: "complete" });
  await settle(100);
  for (const later of asked.slice(1)) await later.answer(run("complete"));
  await asked[0]!.answer(run("running"));
  await settle(100);
  for (const later of asked.slice(1)) await later.answer(run("complete"));
  expect([running.status.value, called("GET /api/runs/r").length]).toEqual(["complete", 2]);
});

test("of two runs the one started last is shown, and stops", async () => {
  const { Running } = await import("../src/editor/running");
  const running = new Running("w");
  const document = asDocument({ nodes: [], edges: [] });
  void running.start(document, {});
  void running.start(document, {});
  await settle();
  void running.interrupt(); // before it has an id
  const [first, second] = called("POST /api/prompt");
  await second!.answer({ promptId: "second" });
  await first!.answer({ promptId: "first" });
  expect([running.runId.value, called("DELETE /api/interrupt/second").length]).toEqual(["second", 1]);
});

test("events that keep coming hide no answer", async () => {
  const { useResource } = await import("../src/api/resource");
  const { api, ask } = await import("../src/api/client");
  const list = effectScope().run(() => useResource(() => ask(api.GET("/api/agents")), ["AGENTS_CHANGED"]))!;
  await settle();
  for (let number = 0; number < 3; number++) {
    hear("AGENTS_CHANGED", {});
    await settle(60);
  }
  await asked[1]!.answer([1]);
  expect(list.data.value).toEqual([1]);
  await asked[0]!.answer([0]); // which is older
  expect(list.data.value).toEqual([1]);
  void list.reload();
  await asked[3]!.answer([3]); // which may be of something else
  expect(list.data.value).toEqual([1]);
  await asked[4]!.answer([4]);
  expect([list.data.value, list.waiting.value]).toEqual([[4], false]);
});

test("what the socket came too late for is asked for again", async () => {
  const { useResource } = await import("../src/api/resource");
  const { api, ask } = await import("../src/api/client");
  effectScope().run(() => useResource(() => ask(api.GET("/api/agents"))));
  await settle();
  await asked[0]!.answer([]);
  socket.onopen?.();
  await settle(60);
  expect(called("GET /api/agents").length).toBe(2);
});

test("of saves without an answer the last is known", async () => {
  const { Persistence } = await import("../src/editor/persistence");
  const of = (name: string) => asDocument({ name, nodes: [], edges: [] });
  const [file, first, second] = ["file", "first", "second"].map(of);
  let drawn = file!;
  const persistence = new Persistence("w", {
    current: () => drawn,
    replace: () => undefined,
    rename: () => undefined,
    settle: () => undefined,
  });
  const draft = (name: string | undefined, revision: string) => ({
    id: "w",
    revision,
    base: "file",
    published: "file",
    workflow: name && of(name),
  });
  const puts = () => called("PUT /api/workflows/w/draft");
  void persistence.load();
  await settle();
  await called("GET /api/workflows/w")[0]!.answer(file);
  await called("GET /api/workflows/w/draft")[0]!.answer(draft(undefined, "1"));
  drawn = first!;
  persistence.changed("typed");
  await settle(1000);
  await puts()[0]!.fail();
  await settle(5000);
  await puts()[1]!.fail();
  drawn = second!;
  persistence.changed("typed");
  await settle(5000);
  await puts()[2]!.fail(); // and the server has taken it
  await settle(5000);
  await puts()[3]!.answer({ code: "changed" }, 412);
  await called("GET /api/workflows/w")[1]!.answer(file);
  await called("GET /api/workflows/w/draft")[1]!.answer(draft("second", "2"));
  await puts()[4]!.answer(draft("second", "3"));
  expect([persistence.conflict.value, persistence.state.value]).toEqual([undefined, "saved"]);
});
