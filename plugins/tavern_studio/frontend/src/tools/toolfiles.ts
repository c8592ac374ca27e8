import { api, ask, askWhole, type Schemas } from "../api/client";
import { savedOnce } from "../kit/stale";

/** A tool file that is edited: its text and the code of its script, and the revision that it was read at. */
interface Opened {
  file: Schemas["ToolFile"];
  tag: string;
}

export async function readTool(name: string): Promise<Opened> {
  const { data, response } = await askWhole(api.GET("/api/tool-files/{name}", { params: { path: { name } } }));
  return { file: data, tag: response.headers.get("ETag") ?? "" };
}

/** Save what was read with a tag; without one it must be new, and `*` overwrites whatever is there. */
export async function saveTool(name: string, source: Schemas["ToolSource"], tag?: string): Promise<Opened> {
  const headers: Record<string, string> = tag === undefined ? { "If-None-Match": "*" } : { "If-Match": tag };
  const save = async (): Promise<Opened> => {
    const { data, response } = await askWhole(
      api.PUT("/api/tool-files/{name}", { params: { path: { name } }, body: source, headers }),
    );
    return { file: data, tag: response.headers.get("ETag") ?? "" };
  };
  const isSaved = ({ file }: Opened) =>
    file.source?.text === source.text && (file.source.code ?? null) === (source.code ?? null);
  return savedOnce(save, () => readTool(name), isSaved);
}

export async function deleteTool(name: string, tag: string, withScript: boolean): Promise<void> {
  const params = { path: { name }, query: { script: withScript } as never };
  await ask(api.DELETE("/api/tool-files/{name}", { params, headers: { "If-Match": tag } }));
}

export function checkTool(name: string, source: Schemas["ToolSource"]): Promise<Schemas["ToolFileCheck"]> {
  return ask(api.POST("/api/tool-check", { body: { name, source } }));
}

export function draftOf(code: string, language: string, entryPoint?: string): Promise<Schemas["ToolDraft"]> {
  return ask(api.POST("/api/tool-draft", { body: { code, language, ...(entryPoint && { entryPoint }) } as never }));
}

export function tryTool(
  name: string,
  source: Schemas["ToolSource"],
  values: Record<string, unknown>,
): Promise<Schemas["ToolResult"]> {
  return ask(api.POST("/api/tool-try", { body: { name, source, arguments: values } as never }));
}
