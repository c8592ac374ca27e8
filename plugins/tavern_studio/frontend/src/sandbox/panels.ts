import { defineComponent, h, type Component } from "vue";
import type { Asked, SandboxedFrontend } from "./sandbox";
import SandboxPanel from "./SandboxPanel.vue";

/** Add the panels that a manifest declares, each of which runs the plugin's code in a frame of its own. */
export function showSandboxed(api: Asked, frontend: SandboxedFrontend, addressOf: (url: string) => string): void {
  const files = { entry: addressOf(frontend.entryUrl ?? ""), styles: (frontend.styleUrls ?? []).map(addressOf) };
  for (const { id, title, icon, place } of frontend.panels ?? []) {
    const component: Component = defineComponent(
      () => () => h(SandboxPanel, { api, files, panel: id, title, commands: frontend.commands ?? [] }),
    );
    api.ui.addPanel({ id, title, icon: icon ?? undefined, place, component });
  }
}
