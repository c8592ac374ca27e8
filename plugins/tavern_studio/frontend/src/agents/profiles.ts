import { api, ask, askWhole } from "../api/client";
import { canonical } from "../editor/comparison";
import { savedOnce } from "../kit/stale";

/** A profile as its file has it; what this page does not know of stays. */
export interface Profile {
  id: string;
  name: string;
  version: string;
  schema_version: string;
  core_deliberation_workflow_id: string;
  description?: string;
  tool_ids_inventory?: string[];
  skill_workflow_ids_inventory?: string[];
  [other: string]: unknown;
}

/** The fields that the form has; the others are edited as JSON. */
export const KNOWN = ["id", "name", "description", "core_deliberation_workflow_id", "tool_ids_inventory"];

interface Read {
  profile: Profile;
  tag: string;
}

export async function readProfile(id: string): Promise<Read> {
  const { data, response } = await askWhole(api.GET("/api/agents/{id}", { params: { path: { id } } }));
  return { profile: data as unknown as Profile, tag: response.headers.get("ETag") ?? "" };
}

/** Save a profile that was read with a tag; without one it must be new. */
export async function saveProfile(profile: Profile, tag?: string): Promise<string> {
  const headers: Record<string, string> = tag === undefined ? { "If-None-Match": "*" } : { "If-Match": tag };
  const save = async (): Promise<Read> => {
    const { response } = await askWhole(
      api.PUT("/api/agents/{id}", { params: { path: { id: profile.id } }, body: profile as never, headers }),
    );
    return { profile, tag: response.headers.get("ETag") ?? "" };
  };
  const isSaved = (found: Read) => canonical(found.profile) === canonical(profile);
  return (await savedOnce(save, () => readProfile(profile.id), isSaved)).tag;
}

export async function deleteProfile(id: string, tag: string): Promise<void> {
  await ask(api.DELETE("/api/agents/{id}", { params: { path: { id } }, headers: { "If-Match": tag } }));
}

/** Let an agent call a tool. */
export async function addTool(id: string, tool: string): Promise<void> {
  const { profile, tag } = await readProfile(id);
  const tools = profile.tool_ids_inventory ?? [];
  if (!tools.includes(tool)) await saveProfile({ ...profile, tool_ids_inventory: [...tools, tool] }, tag);
}
