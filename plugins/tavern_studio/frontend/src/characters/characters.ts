import { shallowRef } from "vue";
import { api, ask, type Schemas } from "../api/client";
import { page } from "../api/page";

/** The characters of the project by their ids, which are those of their agents; once somebody has asked. */
export const characters = shallowRef(new Map<string, Schemas["CharacterSummary"]>());

/** Ask which characters there are; what is there stays where that is refused. */
export async function lookAtCharacters(): Promise<void> {
  const found = await ask(api.GET("/api/characters")).catch(() => undefined); // an agent is shown without its picture
  if (found !== undefined) characters.value = new Map(found.map((one) => [one.id, one]));
}

const address = (id: string, rest: string, query: Record<string, string> = {}) =>
  `${page.base}/api/characters/${encodeURIComponent(id)}/${rest}?${new URLSearchParams({ projectId: page.project.id, ...query })}`;

/** Where the picture of an agent is; undefined where it has none. */
export const pictureOf = (id: string) => (characters.value.get(id)?.picture ? address(id, "picture") : undefined);

/** Where a character is found as a card: a picture that carries it. */
export const cardOf = (id: string) => address(id, "export", { format: "png" });

/** Make an agent of a card, and return what came of it. */
export async function importCard(file: File): Promise<Schemas["CharacterImport"]> {
  const made = await ask(api.POST("/api/characters", sent(file, { name: file.name })));
  await lookAtCharacters();
  return made;
}

/** The options of a request whose body is a file as it is. */
const sent = (file: File, query: Record<string, string> = {}) => ({
  params: { query: query as never },
  body: file as never,
  bodySerializer: (body: unknown) => body as File,
});

/** Make a conversation of a chat of SillyTavern; return where the page shows it. */
export async function importChat(file: File): Promise<string> {
  const made = await ask(api.POST("/api/character-chats", sent(file)));
  return `/chat/${encodeURIComponent(made.id)}?agent=${encodeURIComponent(made.agent)}`;
}

/** Make a workflow of a preset of SillyTavern; return where the page shows it. */
export async function importPreset(file: File): Promise<string> {
  const made = await ask(api.POST("/api/character-presets", sent(file, { name: file.name })));
  return `/workflows/${made.workflow}`;
}

/** Begin a conversation with the greeting of a character; return where the page shows it. */
export async function beginWith(id: string): Promise<string> {
  const begun = await ask(api.POST("/api/characters/{id}/conversations", { params: { path: { id } } }));
  const agent = encodeURIComponent(begun.agent);
  return begun.greetings === 0 ? `/chat?agent=${agent}` : `/chat/${encodeURIComponent(begun.id)}?agent=${agent}`;
}
