import { defineStore } from "pinia";
import { shallowReactive, shallowRef } from "vue";
import { page } from "../api/page";
import { Session } from "./session";

const KEPT = `tavern.tabs.${page.project.id}`;

/** The workflows that are open. A tab that is there already is shown, never read anew over what was changed in it. */
export const useTabs = defineStore("tabs", () => {
  const kept = JSON.parse(localStorage.getItem(KEPT) ?? "[]") as string[];
  const ids = shallowRef<string[]>(kept);
  const sessions = shallowReactive(new Map<string, Session>());

  function open(id: string): Session {
    if (!ids.value.includes(id)) keep([...ids.value, id]);
    let session = sessions.get(id);
    if (session === undefined) {
      session = new Session(id);
      sessions.set(id, session);
    }
    return session;
  }

  function close(id: string): void {
    sessions.get(id)?.close();
    sessions.delete(id);
    keep(ids.value.filter((one) => one !== id));
  }

  function keep(next: string[]): void {
    ids.value = next;
    localStorage.setItem(KEPT, JSON.stringify(next));
  }

  return { ids, sessions, open, close };
});
