// Runs inside of a sandbox: calls one function of a JavaScript or TypeScript file with the input, and writes what it
// returns to the result's own descriptor. Usage: call.mjs FILE FUNCTION ARGUMENT…

import { readFileSync, writeSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [file, name] = process.argv.slice(2);
const given = JSON.parse(readFileSync(0, "utf8"));
process.argv.splice(1, 3, file);

function fail(message) {
  console.error(message);
  process.exit(1);
}

const module = await import(pathToFileURL(file).href);
const found = module[name] ?? module.default?.[name];
if (typeof found !== "function") fail(`${basename(file)} has no function ${name}, which is to be called`);

const result = (await found(given)) ?? null;
let text;
try {
  text = JSON.stringify(result);
} catch (error) {
  fail(`what ${name} returned is no JSON: ${error.message}`);
}
if (text === undefined) fail(`what ${name} returned is no JSON: a ${typeof result}`);

const data = Buffer.from(text);
const channel = Number(process.env.TAVERN_RESULT_FD);
for (let at = 0; at < data.length; ) at += writeSync(channel, data, at);
process.exit(0);
