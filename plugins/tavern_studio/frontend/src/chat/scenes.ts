import { computed, type Ref } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { useResource } from "../api/resource";
import { may } from "../api/rights";
import { pictureOf } from "../characters/characters";

export const SPEAK = "POST /api/scene-runs/{run}/messages";
export const MAKE = "POST /api/scenes";
export const START = "POST /api/scenes/{id}/runs";

/** A conversation of several agents: who they are, who is writing, and what people do in it. */
export function useScene(id: Ref<string | undefined>) {
  const looks = may("GET /api/scene-runs");
  const runs = useResource<Schemas["SceneRun"][]>(
    async () => (looks ? await ask(api.GET("/api/scene-runs")) : []),
    ["SCENE_UPDATE"],
  );
  const scenes = useResource<Schemas["SceneSummary"][]>(async () => (looks ? await ask(api.GET("/api/scenes")) : []));
  const run = computed(() => runs.data.value?.find((one) => one.id === id.value));
  const writing = computed(() => {
    const woken = run.value?.wakes?.[0]?.instanceId;
    return run.value?.members.find((one) => one.instanceId === woken);
  });
  const params = () => ({ path: { run: id.value! } });

  return {
    run,
    writing,
    /** Those that can be started. */
    known: computed(() => (may(START) ? (scenes.data.value ?? []).filter((one) => !one.problems?.length) : [])),
    /** Whether a conversation is an agent's own in a scene, which holds its calls: what it says is said in that of the scene. */
    isInner: (name: string) => (runs.data.value ?? []).some((one) => name.startsWith(`${one.id}.`)),
    /** The picture of who is called so in it. */
    pictureOf(name: string | null | undefined): string | undefined {
      const member = run.value?.members.find((one) => one.name === name);
      return member && pictureOf(member.profileId);
    },
    /** Make a scene of agents; return its id. */
    async make(scene: Schemas["NewScene"]): Promise<string> {
      const made = await ask(api.POST("/api/scenes", { body: scene as never }));
      await scenes.reload();
      return made.id;
    },
    async start(scene: string): Promise<string> {
      const begun = await ask(api.POST("/api/scenes/{id}/runs", { params: { path: { id: scene } } }));
      await runs.reload();
      return begun.id;
    },
    /** Say something to all; without a text each of them has one more turn. */
    async say(message: string): Promise<void> {
      const persona = message && (await ask(api.GET("/api/persona")).catch(() => undefined)); // then they hear "User"
      const more = message ? {} : { turns: run.value?.members.length };
      const body = { message, ...(persona && persona.name && { name: persona.name }), ...more } as never;
      await ask(api.POST("/api/scene-runs/{run}/messages", { params: params(), body }));
      await runs.reload();
    },
    async stop(): Promise<void> {
      await ask(api.POST("/api/scene-runs/{run}/stop", { params: params() }));
      await runs.reload();
    },
  };
}
