import { putBlob } from "../api/blobs";
import type { Schemas } from "../api/client";

/** Media types of pictures that models are sent. */
const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const TEXTS = /^text\/|[/+](json|xml|yaml|toml|javascript|sql)$/;
const TEXT_NAMES =
  /\.(md|txt|csv|tsv|json|ya?ml|toml|ini|log|py|[jt]sx?|vue|css|html?|xml|sql|sh|rs|go|java|c|h|cpp)$/i;
/** Longer texts belong into the project's files, where tools read them in parts. */
const MAX_TEXT_BYTES = 200_000;
/** How many pictures a message may have. */
const MAX_PICTURES = 16;

/** A file that goes along with a message: a picture that the model sees, or a text that becomes part of the message. */
export interface Attachment {
  name: string;
  file: File;
  isPicture: boolean;
}

/** What can go along with a message, and what cannot, with the reason as a key of the page's texts. */
export function attach(
  before: readonly Attachment[],
  files: Iterable<File>,
): { attachments: Attachment[]; refused: { name: string; why: string }[] } {
  const attachments = [...before];
  const refused: { name: string; why: string }[] = [];
  for (const file of files) {
    const isPicture = PICTURES.includes(file.type);
    const isText = TEXTS.test(file.type) || (!file.type.startsWith("image/") && TEXT_NAMES.test(file.name));
    if (!isPicture && !isText) refused.push({ name: file.name, why: "chat.attach.kind" });
    else if (isText && file.size > MAX_TEXT_BYTES) refused.push({ name: file.name, why: "chat.attach.long" });
    else if (isPicture && attachments.filter((one) => one.isPicture).length >= MAX_PICTURES)
      refused.push({ name: file.name, why: "chat.attach.many" });
    else attachments.push({ name: file.name, file, isPicture });
  }
  return { attachments, refused };
}

/** A message with the texts that go along with it, each in a block of code under its name. */
export async function withTexts(message: string, attachments: readonly Attachment[]): Promise<string> {
  const blocks = [message];
  for (const { name, file, isPicture } of attachments) {
    if (isPicture) continue;
    const text = (await file.text()).trimEnd();
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
    const fence = "`".repeat(longest + 1);
    blocks.push(`${name}\n${fence}${/\.(\w+)$/.exec(name)?.[1] ?? ""}\n${text}\n${fence}`);
  }
  return blocks.filter(Boolean).join("\n\n");
}

/** Keep the pictures at the server; returns them as a message has them. Raises what the server refuses. */
export async function picturesOf(attachments: readonly Attachment[]): Promise<Schemas["ChatImage"][]> {
  const pictures = attachments.filter((one) => one.isPicture);
  return Promise.all(pictures.map(async ({ file }) => ({ blob: await putBlob(file) })));
}
