import type { Extension } from "@codemirror/state";

/** Return what colours a language; of one that is not known, nothing. */
export async function languageOf(name: string): Promise<Extension> {
  switch (name.toLowerCase()) {
    case "json":
      return (await import("@codemirror/lang-json")).json();
    case "python":
    case "py":
      return (await import("@codemirror/lang-python")).python();
    case "javascript":
    case "js":
    case "typescript":
      return (await import("@codemirror/lang-javascript")).javascript({ typescript: name === "typescript" });
    case "markdown":
      return (await import("@codemirror/lang-markdown")).markdown();
    default:
      return [];
  }
}
