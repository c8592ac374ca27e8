import { defineStore } from "pinia";
import { markRaw } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { useResource } from "../api/resource";

/** The plugin that would bring a node type, and why it does not. */
interface Provider {
  name: string;
  /** `absent` where it is not installed. */
  state: NonNullable<Schemas["PluginInfo"]["state"]> | "absent";
  version?: string;
}

const WITHHELD = new Set(["needs-review", "disabled", "failed", "invalid", "incompatible"]);

/** Return which plugin a type that is not there would be of: its namespace says so; `core` is that of the first-party ones. */
export function providerOf(type: string, plugins: Schemas["PluginInfo"][]): Provider | undefined {
  const namespace = type.includes(":") ? type.slice(0, type.indexOf(":")) : "";
  if (namespace === "") return undefined;
  const found =
    namespace === "core"
      ? plugins.find((one) => one.firstParty && WITHHELD.has(one.state ?? ""))
      : plugins.find((one) => one.name === namespace);
  if (found) return { name: found.name, state: found.state ?? "discovered", version: found.version };
  return namespace === "core" ? undefined : { name: namespace, state: "absent" };
}

/** All plugins of the server, asked for when the first type is missing. */
export const useProviders = defineStore("providers", () => {
  const plugins = markRaw(useResource(() => ask(api.GET("/api/plugins")), ["PLUGINS_CHANGED"]));
  return { plugins };
});
