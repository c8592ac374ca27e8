import { expect, test } from "vitest";
import { apiOf } from "../src/extensions/api";
import { Extension } from "../src/extensions/extension";

test("a place that the page does not have is refused with the nearest one", () => {
  const extension = new Extension("acme", "ACME", "1.0.0", "/nowhere/", new Set(["ui.inject:node:footer"]));
  const api = apiOf(extension);
  const calls: [string, () => unknown][] = [
    [
      'outlet "node:foter" (did you mean "node:footer"?)',
      () => api.ui.registerOutletComponent("node:foter" as never, {}),
    ],
    [
      'panel "worklows" (did you mean "workflows"?)',
      () => api.ui.registerOutletComponent("sidebar:panel:header[worklows]", {}),
    ],
    [
      'outlet "node:footer[nodes]" (did you mean',
      () => api.ui.registerOutletComponent("node:footer[nodes]" as never, {}),
    ],
    [
      'part "ui:BasNode" (did you mean "ui:BaseNode"?)',
      () => api.ui.wrapComponent("ui:BasNode" as never, (one) => one),
    ],
    [
      'client hook "workflow:before-exec" (did you mean',
      () => api.hooks.on("workflow:before-exec" as never, () => undefined),
    ],
  ];
  for (const [said, call] of calls) expect(call).toThrow(`there is no ${said}`);
  expect(() => api.ui.registerOutletComponent("sidebar:panel:header[acme.board]", {})).toThrow("ui.inject");
  extension.close();
});
