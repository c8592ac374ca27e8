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
let socket: { onopen?: () => void; onclose?: () => void; onmessage?: (event: { data: string }) => void };

const advance = (milliseconds = 20) => vi.advanceTimersByTimeAsync(milliseconds);
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
          return advance();
        },
        fail() {
          reject(new TypeError("no answer"));
          return advance();
        },
      });
    });
  });
  const Line = () => (socket = { send: () => undefined, close: () => undefined } as unknown as typeof socket);
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
  await advance();
  hear("EXECUTION_STATUS_UPDATE", { promptId: "r", status: "complete" });
  await advance(100);
  for (const later of asked.slice(1)) await later.answer(run("complete"));
  await asked[0]!.answer(run("running"));
  await advance(100);
  for (const later of asked.slice(1)) await later.answer(run("complete"));
  expect([running.status.value, called("GET /api/runs/r").length]).toEqual(["complete", 2]);
});

test("of two runs the one started last is shown, and stops", async () => {
  const { Running } = await import("../src/editor/running");
  const running = new Running("w");
  const document = asDocument({ nodes: [], edges: [] });
  void running.start(document, {});
  void running.start(document, {});
  await advance();
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
  await advance();
  for (let number = 0; number < 3; number++) {
    hear("AGENTS_CHANGED", {});
    await advance(60);
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
  await advance();
  await asked[0]!.answer([]);
  socket.onopen?.();
  await advance(60);
  expect(called("GET /api/agents").length).toBe(2);
});

/** A workflow that is drawn, and what the server is asked to save of it. */
async function drawn() {
  const { Persistence } = await import("../src/editor/persistence");
  const of = (name: string) => asDocument({ name, nodes: [], edges: [] });
  let document = of("file");
  const persistence = new Persistence("w", {
    current: () => document,
    replace: () => undefined,
    rename: () => undefined,
    swap: () => undefined,
  });
  const draft = (name: string | undefined, revision: string) => ({
    id: "w",
    revision,
    base: "file",
    published: "file",
    workflow: name && of(name),
  });
  const type = (name: string) => {
    document = of(name);
    persistence.changed("typed");
  };
  const puts = () => called("PUT /api/workflows/w/draft");
  void persistence.load();
  await advance();
  await called("GET /api/workflows/w")[0]!.answer(of("file"));
  await called("GET /api/workflows/w/draft")[0]!.answer(draft(undefined, "1"));
  return { persistence, of, draft, type, puts };
}

test("of saves without an answer the last is known", async () => {
  const { persistence, of, draft, type, puts } = await drawn();
  type("first");
  await advance(1000);
  await puts()[0]!.fail();
  await advance(5000);
  await puts()[1]!.fail();
  type("second");
  await advance(5000);
  await puts()[2]!.fail(); // and the server has taken it
  await advance(5000);
  await puts()[3]!.answer({ code: "changed" }, 412);
  await called("GET /api/workflows/w")[1]!.answer(of("file"));
  await called("GET /api/workflows/w/draft")[1]!.answer(draft("second", "2"));
  await puts()[4]!.answer(draft("second", "3"));
  expect([persistence.conflict.value, persistence.state.value]).toEqual([undefined, "saved"]);
});

test("a draft that is refused for good is not sent again until something is another", async () => {
  const { connection } = await import("../src/api/socket");
  for (const [status, changed, back] of [
    [400, true, false],
    [401, false, true],
    [403, false, true],
    [404, false, false],
    [409, false, false],
    [413, true, false],
    [422, true, false],
  ] as const) {
    asked = [];
    connection.value = "lost";
    const { persistence, draft, type, puts } = await drawn();
    type("much");
    await advance(1000);
    await puts()[0]!.answer({ code: "refused", detail: "too much" }, status);
    await advance(60_000);
    expect([puts().length, persistence.refusal.value?.message], `${status}`).toEqual([1, "too much"]);
    connection.value = "open";
    await advance(6000);
    expect(puts().length, `${status}, connected again`).toBe(back ? 2 : 1);
    if (!back) {
      type("less");
      await advance(6000);
      expect(puts().length, `${status}, changed`).toBe(changed ? 2 : 1);
    }
    if (back || changed) {
      await puts()[1]!.answer(draft("less", "2"));
      expect([persistence.refusal.value, persistence.state.value], `${status}`).toEqual([undefined, "saved"]);
    }
    persistence.close();
  }
});

test("what waits is sent as soon as the server is there again, and ends with its tab", async () => {
  const { connection } = await import("../src/api/socket");
  connection.value = "lost";
  const { persistence, type, puts } = await drawn();
  type("typed");
  await advance(1000);
  await puts()[0]!.fail();
  connection.value = "open";
  await advance();
  expect(puts().length).toBe(2);
  await puts()[1]!.fail();
  persistence.close();
  await advance();
  await puts()[2]!.fail(); // the last one
  await advance(60_000);
  expect(puts().length).toBe(3);
});

test("a run that is gone is not shown as queued", async () => {
  const { Running } = await import("../src/editor/running");
  const { toasts } = await import("../src/kit/toasts");
  const running = new Running("w");
  void running.open("r");
  await advance();
  await asked[0]!.answer({ code: "not_found", detail: "no run r" }, 404);
  expect([running.status.value, running.runId.value]).toEqual([undefined, undefined]);
  expect(toasts.value.map((one) => one.text)).toEqual(["The run r is not there any more."]);
});

test("a page without a session says so, and asks no more until somebody is signed in", async () => {
  const { connection, signIn } = await import("../src/api/socket");
  socket.onclose?.();
  expect(connection.value).toBe("lost");
  await advance(500);
  await called("GET /api/me")[0]!.answer({ code: "unauthorized" }, 401);
  await advance(60_000);
  expect([connection.value, called("GET /api/me").length]).toEqual(["signedOut", 1]);
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}", { status: 200 })));
  const before = socket;
  const entered = signIn("a token");
  await advance();
  await called("GET /api/me")[1]!.answer({});
  expect(await entered).toBe(true);
  before.onclose?.(); // which is not that of now
  socket.onopen?.();
  hear("SUBSCRIBED", { epoch: "e", seq: 1 });
  expect(connection.value).toBe("open");
});

test("a server that is started again is found within three seconds", async () => {
  const { connection } = await import("../src/api/socket");
  socket.onclose?.();
  for (let number = 0; number < 20; number++) {
    await advance(2000);
    await called("GET /api/me").at(-1)!.fail();
  }
  const before = called("GET /api/me").length;
  await advance(2000);
  expect([connection.value, called("GET /api/me").length]).toEqual(["lost", before + 1]);
});
