// Packs the files of a bundle, each beside itself: the server sends what a browser takes.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { argv } from "node:process";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const LEAST = 1024;

for (const name of readdirSync(argv[2], { recursive: true })) {
  if (!/\.(js|css|svg)$/.test(name)) continue;
  const file = join(argv[2], name);
  const content = readFileSync(file);
  if (content.length < LEAST) continue;
  writeFileSync(`${file}.gz`, gzipSync(content, { level: 9 }));
  writeFileSync(`${file}.br`, brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
}
