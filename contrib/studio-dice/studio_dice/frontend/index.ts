import type { ExtensionApi } from "@tavern-host/extension";
import { h, type Component, type FunctionalComponent } from "vue";
import DieFace from "./DieFace.vue";
import ResettableControl from "./ResettableControl.vue";

export default function setup(api: ExtensionApi) {
  api.nodes.registerUI("studio-dice:Throw", DieFace);
  api.ui.wrapComponent("ui:NodeInputControl", (original) => {
    // It declares no props, so that all of them reach the original.
    const resettable: FunctionalComponent = (_props, { attrs }) =>
      h(ResettableControl as Component, { ...attrs, original, title: api.t({ en: "Reset to {value}", zh: "重置为 {value}" }) });
    resettable.inheritAttrs = false;
    return resettable;
  });
}
