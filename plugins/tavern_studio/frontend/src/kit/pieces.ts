/** Characters of a stream that are kept to be shown. */
const MAX_STREAM_CHARS = 200_000;

/** Add a piece to what has streamed: text as it is (`{type: "text_chunk", content}`), anything else as a line of JSON. */
export function joined(before: string | undefined, piece: unknown): string {
  const { type, content } = Object(piece) as { type?: string; content?: unknown };
  const text =
    type === "text_chunk"
      ? String(content)
      : piece == null
        ? ""
        : `${JSON.stringify(type === "custom" ? content : piece)}\n`;
  return ((before ?? "") + text).slice(-MAX_STREAM_CHARS);
}
