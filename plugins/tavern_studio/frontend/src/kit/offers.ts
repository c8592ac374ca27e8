import { defineStore } from "pinia";
import { computed, markRaw } from "vue";
import { api, ask } from "../api/client";
import { useResource } from "../api/resource";

/** What controls offer to choose from: each list is asked for once, when the first control needs it. */
export const useModels = defineStore("models", () => {
  const resource = markRaw(useResource(() => ask(api.GET("/api/models")), ["SETTINGS_CHANGED"]));
  return { names: computed(() => resource.data.value?.models.map((one) => one.name) ?? []) };
});

export const useTools = defineStore("tools", () => {
  const resource = markRaw(useResource(() => ask(api.GET("/api/tools")), ["TOOLS_CHANGED", "PLUGINS_CHANGED"]));
  return { all: computed(() => resource.data.value ?? []) };
});

export const useWorkflowIds = defineStore("workflowIds", () => {
  const resource = markRaw(useResource(() => ask(api.GET("/api/workflows")), ["WORKFLOW_CHANGED"]));
  return { ids: computed(() => resource.data.value?.map((one) => one.id) ?? []) };
});

const MOST = 500;

export const useFilePaths = defineStore("filePaths", () => {
  const query = { recursive: true, limit: MOST } as never;
  const resource = markRaw(useResource(() => ask(api.GET("/api/files", { params: { query } }))));
  return {
    paths: computed(
      () => resource.data.value?.entries?.filter((one) => one.kind === "file").map((one) => one.path) ?? [],
    ),
    reload: resource.reload,
  };
});
