import { h } from "vue";

/** @import { ExtensionApi } from "@tavern-host/extension" */

/** @param {ExtensionApi} api */
export default function setup(api) {
  const QuietStatusBar = {
    name: "QuietStatusBar",
    setup() {
      return () => h("footer", { role: "status", style: { padding: "var(--s1) var(--s3)" } }, "Nothing to worry about.");
    },
  };
  api.ui.overrideComponent("ui:StatusBar", QuietStatusBar);
}
