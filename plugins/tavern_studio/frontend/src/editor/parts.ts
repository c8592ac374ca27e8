import { defineAsyncComponent } from "vue";
import { registerPart } from "../registry/components";
import BaseNode from "./canvas/BaseNode.vue";
import GraphEditor from "./canvas/GraphEditor.vue";
import NodeMenu from "./canvas/NodeMenu.vue";
import InputControl from "./controls/InputControl.vue";
import SidePanel from "./panels/SidePanel.vue";
import StatusBar from "./panels/StatusBar.vue";

const AssistantPanel = defineAsyncComponent(() => import("../assistant/AssistantPanel.vue"));

/** Register the parts of the editor; what plugins have put around them stays. */
export function registerEditorParts(): void {
  registerPart("ui:GraphEditor", GraphEditor);
  registerPart("ui:BaseNode", BaseNode);
  registerPart("ui:ContextMenu", NodeMenu);
  registerPart("ui:NodeInputControl", InputControl);
  registerPart("ui:RightPreviewPanel", SidePanel);
  registerPart("ui:StatusBar", StatusBar);
  registerPart("ui:AssistantPanel", AssistantPanel);
}
