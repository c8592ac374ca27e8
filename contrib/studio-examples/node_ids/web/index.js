import { h, ref } from "vue";

/** @import { ExtensionApi } from "@tavern-host/extension" */

/** @param {ExtensionApi} api */
export default function setup(api) {
  const withType = ref(api.getConfig("withType"));
  api.onConfigChange("withType", (value) => (withType.value = value));
  const isShown = ref(true);

  const NodeId = {
    name: "NodeId",
    props: ["id", "type"],
    setup(props) {
      return () => {
        if (!isShown.value) return null;
        return h("code", { class: "node-ids" }, withType.value ? `${props.id} · ${props.type}` : props.id);
      };
    },
  };
  api.ui.registerOutletComponent("node:footer", NodeId);
  api.commands.add({ id: "toggle", title: "Show or hide the ids of nodes", run: () => (isShown.value = !isShown.value) });
}
