import { createApp, defineComponent, h, nextTick, ref } from "vue";
import { beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../src/api/client";
import { asError } from "../src/api/resource";
import { isMended, placesNow, useFaultPlace, wordsOf } from "../src/kit/faults";
import { attempt, refuse, say, toasts, unsay } from "../src/kit/toasts";
import { know } from "../src/registry/known";
import { addHook, askHooks } from "../src/registry/hooks";

beforeEach(() => (toasts.value = []));

function places(): { outer: HTMLElement; inner: HTMLElement; shown: () => string[][]; leave: () => void } {
  const found: ReturnType<typeof useFaultPlace>[] = [];
  const Place = defineComponent({
    setup() {
      const root = ref<HTMLElement>();
      found.push(useFaultPlace(root));
      return () => h("div", { ref: root });
    },
  });
  const app = createApp({
    render: () =>
      h("main", { "data-faults": "" }, [h(Place), h("section", { "data-faults": "" }, [h("button"), h(Place)])]),
  });
  const host = document.createElement("div");
  app.mount(host);
  const shown = () => found.map(({ faults }) => faults.value.map(({ error }) => wordsOf(error)));
  return {
    outer: host.querySelector("main")!,
    inner: host.querySelector("button")!,
    shown,
    leave: () => app.unmount(),
  };
}

test("what goes wrong stands in the innermost place around what was touched, and in the corner where there is none", async () => {
  const { inner, outer, shown, leave } = places();
  document.body.append(outer);
  const fail = () => Promise.reject(new ApiError(409, "conflict", "it is taken", {}, "POST /api/workflows"));
  inner.dispatchEvent(new Event("pointerdown", { bubbles: true }));
  await attempt(fail);
  expect(shown()).toEqual([[], ["it is taken"]]);
  outer.dispatchEvent(new Event("pointerdown", { bubbles: true }));
  await attempt(fail);
  await attempt(fail); // once is enough
  expect(shown()).toEqual([["it is taken"], ["it is taken"]]);
  leave();
  expect(placesNow()).toEqual([]);
  await attempt(fail);
  expect(toasts.value.map((one) => one.text)).toEqual(["it is taken"]);
});

test("an error is mended by what it refused, or by the connection, and by nothing else", () => {
  const refused = new ApiError(409, "conflict", "", {}, "PUT /api/workflows/a");
  expect(isMended(refused, { operation: "PUT /api/workflows/a" })).toBe(true);
  expect(isMended(refused, { operation: "GET /api/workflows/a" })).toBe(false);
  expect(isMended(refused, { isConnected: true })).toBe(false);
  expect(isMended(new ApiError(0, "unreachable", ""), { isConnected: true })).toBe(true);
});

test("what was not done leaves by itself; what is still so stays until it is taken back", async () => {
  vi.useFakeTimers();
  say("Deleted elsewhere.", "bad", "greeting");
  refuse("These cannot be connected.");
  vi.advanceTimersByTime(20_000);
  expect(toasts.value.map((one) => one.text)).toEqual(["Deleted elsewhere."]);
  unsay("greeting");
  expect(toasts.value).toEqual([]);
  vi.useRealTimers();
  await nextTick();
});

test("a veto of a plugin is its own sentence with its name, whether it comes from the page or from the server", async () => {
  know([{ name: "acme", displayName: "Acme guard" }]);
  const server = new ApiError(
    403,
    "vetoed",
    "acme refused: not today",
    { reason: "not today" },
    "POST /api/prompt",
    "acme",
  );
  expect(wordsOf(server)).toBe("Acme guard stopped this: not today");
  const owner = { name: "acme", title: "Acme guard", fail: () => undefined, owns: () => false };
  const remove = addHook(owner, "settings:before-save", (event: { veto(why: string): void }) =>
    event.veto("too short"),
  );
  const thrown = await askHooks("settings:before-save", { plugin: "x", values: {} }).catch((error: unknown) => error);
  remove();
  expect(asError(thrown).code).toBe("vetoed");
  expect(wordsOf(asError(thrown))).toBe("Acme guard stopped this: too short");
});
