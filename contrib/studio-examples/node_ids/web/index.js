import { h, ref } from "vue";

/** @import { ExtensionApi } from "@tavern-host/extension" */

/** @param {ExtensionApi} api */
export default function setup(api) {
  const withType = ref(api.getConfig("withType"));
  api.onConfigChange("withType", (value) => (withType.value = value));
  const isShown = ref(true);

  /** @type {import("vue").FunctionalComponent<{ id: string, type: string }>} */
  const NodeId = ({ id, type }) =>
    isShown.value ? h("code", { class: "node-ids" }, withType.value ? `${id} · ${type}` : id) : null;
  NodeId.props = ["id", "type"];

  api.ui.registerOutletComponent("node:footer", NodeId);
  api.commands.add({ id: "toggle", title: "Show or hide the ids of nodes", run: () => (isShown.value = !isShown.value) });
}
