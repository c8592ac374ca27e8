/** Texts in PNG pictures: the chunk `iTXt` of ISO/IEC 15948 (PNG, third edition), without compression. */

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

export const isPng = (bytes: Uint8Array): boolean => SIGNATURE.every((byte, index) => bytes[index] === byte);

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crc(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ TABLE[(value ^ byte) & 0xff]!;
  return (value ^ 0xffffffff) >>> 0;
}

interface Chunk {
  type: string;
  /** Where its length stands, and where what follows it begins. */
  start: number;
  end: number;
  data: Uint8Array;
}

/** The chunks of a picture, as far as they are whole. */
function* chunksOf(bytes: Uint8Array): Generator<Chunk> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let start = SIGNATURE.length; start + 12 <= bytes.length;) {
    const length = view.getUint32(start);
    const end = start + 12 + length;
    if (end > bytes.length) return;
    const type = new TextDecoder("latin1").decode(bytes.subarray(start + 4, start + 8));
    yield { type, start, end, data: bytes.subarray(start + 8, end - 4) };
    start = end;
  }
}

/** The keywords of all texts of a picture. */
export function keywordsIn(bytes: Uint8Array): string[] {
  return [...chunksOf(bytes)]
    .filter(({ type }) => ["tEXt", "zTXt", "iTXt"].includes(type))
    .map(({ data }) => new TextDecoder("latin1").decode(data.subarray(0, data.indexOf(0))));
}

/** A picture with a text more, before its end. Raises for what is no whole PNG. */
export function withText(bytes: Uint8Array, keyword: string, text: string): Uint8Array<ArrayBuffer> {
  const end = isPng(bytes) ? [...chunksOf(bytes)].find(({ type }) => type === "IEND") : undefined;
  if (end === undefined) throw new Error("not a whole PNG picture");
  const typed = new TextEncoder().encode(`iTXt${keyword}\0\0\0\0\0${text}`);
  const chunk = new Uint8Array(typed.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, typed.length - 4);
  chunk.set(typed, 4);
  view.setUint32(typed.length + 4, crc(typed));
  const made = new Uint8Array(bytes.length + chunk.length);
  made.set(bytes.subarray(0, end.start));
  made.set(chunk, end.start);
  made.set(bytes.subarray(end.start), end.start + chunk.length);
  return made;
}
