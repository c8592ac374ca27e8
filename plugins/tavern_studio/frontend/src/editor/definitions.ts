import { defineStore } from "pinia";
import { computed, markRaw, shallowRef, watch } from "vue";
import { api, ask, type ApiError } from "../api/client";
import { useResource } from "../api/resource";
import { listen, onMissed } from "../api/socket";
import { i18n } from "../i18n";
import { withPickers } from "./controls/kinds";
import { asDocument, type WorkflowDocument } from "./document";
import { inLanguage } from "./languages";
import { isTest, type NodeDefinition } from "./nodetypes";

/** All node types, and the workflows that node groups refer to. */
export const useDefinitions = defineStore("definitions", () => {
  const load = async () =>
    ((await ask(api.GET("/api/nodes"))) as unknown as NodeDefinition[]).map((one) => ({
      ...withPickers(one),
      isTest: isTest(one),
    }));
  const resource = markRaw(useResource(load, ["NODES_RELOADED", "PLUGINS_CHANGED"])); // its own refs, not the store's
  /** Kept once it was answered, be it that node types cannot be read. */
  const known = markRaw(
    new Promise<void>((done) =>
      watch(
        () => resource.data.value ?? resource.error.value,
        () => done(),
        { once: true },
      ),
    ),
  );
  /** All node types, in the language of the page. */
  const all = computed(() =>
    markRaw((resource.data.value ?? []).map((one) => inLanguage(one, i18n.global.locale.value))),
  );
  const byType = computed(() =>
    markRaw(new Map<string, NodeDefinition>(all.value.map((one) => [`${one.namespace}:${one.type}`, one]))),
  );

  const groups = shallowRef(new Map<string, WorkflowDocument | null>());
  /** Return the workflow of a group, or undefined until it was read; null where there is none. */
  function group(id: string): WorkflowDocument | null | undefined {
    if (id === "") return null;
    if (!asked.has(id)) void readGroup(id);
    return groups.value.get(id);
  }
  /** What was asked for last of each. */
  const asked = new Map<string, symbol>();
  listen(["WORKFLOW_CHANGED"], ({ payload }) => {
    const id = String(payload.workflowId);
    if (payload.change === "draft" || !asked.has(id)) return;
    if (payload.change !== "deleted") return void readGroup(id);
    asked.set(id, Symbol());
    groups.value = new Map(groups.value).set(id, null);
  });
  onMissed(() => [...asked.keys()].forEach((id) => void readGroup(id)));
  async function readGroup(id: string): Promise<void> {
    const mine = Symbol();
    asked.set(id, mine);
    const request = api.GET("/api/workflows/{workflowId}", { params: { path: { workflowId: id } } });
    const found = await ask(request).catch((error: ApiError) => {
      return [403, 404].includes(error.status) ? null : undefined; // of another failure nothing follows: it is asked for again
    });
    if (found !== undefined && asked.get(id) === mine)
      groups.value = new Map(groups.value).set(id, found && asDocument(found));
  }

  return { resource, known, all, byType, group };
});
