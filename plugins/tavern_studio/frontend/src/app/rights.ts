import { defineStore } from "pinia";
import { computed } from "vue";
import { api, ask } from "../api/client";
import { useResource } from "../api/resource";

/** What the person at this page may do: buttons that would be refused are not shown. */
export const useRights = defineStore("rights", () => {
  const me = useResource(() => ask(api.GET("/api/me")));
  const has = (access: string) => (me.data.value?.permissions ?? []).some((one) => one === access || one.startsWith(`${access}:`));
  const mayCreate = computed(() => has("create"));
  const mayOperate = computed(() => has("operate"));
  /** Who has the server's token is the operator, and no user. */
  const isUser = computed(() => Boolean(me.data.value?.session));
  return { mayCreate, mayOperate, isUser };
});
