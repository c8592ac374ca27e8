import { api, ask, askWhole, type Schemas } from "../api/client";
import { lookAtCharacters } from "./characters";

/** What the form has of a card, by the names that the API has; all else of the card stays as it is. */
export interface CharacterFields {
  name: string;
  description: string;
  personality: string;
  scenario: string;
  firstMes: string;
  alternateGreetings: string[];
  mesExample: string;
  systemPrompt: string;
  postHistoryInstructions: string;
  creatorNotes: string;
  tags: string[];
}

type Key = keyof CharacterFields;

/** A card, and the version that it is of. */
export interface StoredCharacter {
  fields: CharacterFields;
  tag: string;
}

export function fieldsOf(said: Partial<Schemas["CharacterFields"]>): CharacterFields {
  return {
    name: said.name ?? "",
    description: said.description ?? "",
    personality: said.personality ?? "",
    scenario: said.scenario ?? "",
    firstMes: said.firstMes ?? "",
    alternateGreetings: said.alternateGreetings ?? [],
    mesExample: said.mesExample ?? "",
    systemPrompt: said.systemPrompt ?? "",
    postHistoryInstructions: said.postHistoryInstructions ?? "",
    creatorNotes: said.creatorNotes ?? "",
    tags: said.tags ?? [],
  };
}

const differs = (one: unknown, other: unknown) => JSON.stringify(one) !== JSON.stringify(other);

/** Return the fields that are not as they were. */
export function changesOf(base: CharacterFields, now: CharacterFields): Partial<CharacterFields> {
  const changed = (Object.keys(now) as Key[]).filter((key) => differs(base[key], now[key]));
  return Object.fromEntries(changed.map((key) => [key, now[key]]));
}

/** Return which fields were changed here and elsewhere, to something else. */
export function clashesOf(base: CharacterFields, mine: CharacterFields, theirs: CharacterFields): Key[] {
  const elsewhere = changesOf(base, theirs);
  return (Object.keys(changesOf(base, mine)) as Key[]).filter(
    (key) => key in elsewhere && differs(mine[key], theirs[key]),
  );
}

/** The greetings: the first is what a conversation begins with, the others are its versions. */
export const greetingsOf = (fields: CharacterFields) => [fields.firstMes, ...fields.alternateGreetings];

export const withGreetings = (fields: CharacterFields, [first, ...others]: string[]): CharacterFields => ({
  ...fields,
  firstMes: first ?? "",
  alternateGreetings: others,
});

/** Return a list in which one has changed its place. */
export function moved<T>(list: T[], at: number, to: number): T[] {
  const rest = list.filter((_, index) => index !== at);
  return [...rest.slice(0, to), list[at]!, ...rest.slice(to)];
}

const answered = (data: Schemas["CharacterFields"], response: Response): StoredCharacter => ({
  fields: fieldsOf(data),
  tag: response.headers.get("ETag") ?? "",
});

export async function readCharacter(id: string): Promise<StoredCharacter> {
  const { data, response } = await askWhole(api.GET("/api/characters/{id}", { params: { path: { id } } }));
  return answered(data, response);
}

/** Change fields of the version that was read. */
export async function saveCharacter(id: string, body: Partial<CharacterFields>, tag: string): Promise<StoredCharacter> {
  const options = { params: { path: { id } }, body, headers: { "If-Match": tag } };
  const { data, response } = await askWhole(api.PATCH("/api/characters/{id}", options));
  await lookAtCharacters();
  return answered(data, response);
}

/** Give the version that was read another picture. */
export async function savePicture(id: string, file: File, tag: string): Promise<StoredCharacter> {
  const asked = {
    params: { path: { id } },
    body: file as never,
    bodySerializer: (body: unknown) => body as File,
    headers: { "If-Match": tag },
  };
  const { data, response } = await askWhole(api.PUT("/api/characters/{id}/picture", asked as never));
  await lookAtCharacters();
  return answered(data, response);
}

/** Take the picture from the version that was read. */
export async function removePicture(id: string, tag: string): Promise<StoredCharacter> {
  const asked = { params: { path: { id } }, headers: { "If-Match": tag } };
  const { data, response } = await askWhole(api.DELETE("/api/characters/{id}/picture", asked));
  await lookAtCharacters();
  return answered(data, response);
}

/** Make a character of which only the name is known; return its id. */
export async function newCharacter(name: string): Promise<string> {
  const card = { spec: "chara_card_v3", spec_version: "3.0", data: { ...EMPTY, name } };
  const made = await ask(api.POST("/api/characters", { body: card as never }));
  await lookAtCharacters();
  return made.id;
}

/** The fields that a card of the third version has at least. */
const EMPTY = {
  name: "",
  description: "",
  personality: "",
  scenario: "",
  first_mes: "",
  mes_example: "",
  creator_notes: "",
  system_prompt: "",
  post_history_instructions: "",
  alternate_greetings: [],
  group_only_greetings: [],
  tags: [],
  creator: "",
  character_version: "",
  extensions: {},
};
