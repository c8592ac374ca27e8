import { expect, test } from "vitest";
import { createSSRApp } from "vue";
import { renderToString } from "vue/server-renderer";
import { i18n } from "../src/i18n";
import RemoteWork from "../src/kit/RemoteWork.vue";

test("a node says what a cluster did for it", async () => {
  const work = { worker: "tls://10.0.0.7:40001", received: 300, given: 5 * 1024 ** 2, seconds: 0.25 };
  const text = await renderToString(createSSRApp(RemoteWork, { work }).use(i18n));
  expect(text).toContain("Ran at tls://10.0.0.7:40001 for 250 ms; took 300 B, gave 5.0 MiB.");
});
