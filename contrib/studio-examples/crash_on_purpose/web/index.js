import { h } from "vue";

/** @import { ExtensionApi } from "@tavern-host/extension" */

/** @param {string} where */
function fail(where) {
  throw new Error(`on purpose, ${where}`);
}

/** @param {ExtensionApi} api */
export default function setup(api) {
  api.ui.registerOutletComponent("layout:header:right", {
    name: "FailsWhenPressed",
    setup() {
      /** @type {(label: string, onClick: () => unknown) => import("vue").VNode} */
      const button = (label, onClick) => h("button", { type: "button", class: "button", onClick }, label);
      return () => [
        button("Fail in an event", () => fail("in an event")),
        button("Fail in a promise", async () => fail("in a promise")),
      ];
    },
  });
  api.ui.registerOutletComponent("layout:header:right", { name: "FailsWhenDrawn", render: () => fail("while drawn") });
  // The menu itself is shown in place of a wrap that fails.
  api.ui.wrapComponent("ui:MainMenu", () => ({ name: "FailingWrap", render: () => fail("in a wrap") }));
}
