// Tools as functions, for a script that was given some: `import tools from "tools"; await tools.readFile({…})`. A
// function takes an object with what its tool takes, gives the tool's value, and fails with a ToolError.
// The host writes an `export` for each name below this text, and what the names stand for into `GIVEN`.

import { read as readSome, writeSync } from "node:fs";

const number = Number(process.env.TAVERN_CALLS_FD);
const waiting = new Map();
let latest = 0;
let reading = false;
let held = Buffer.alloc(0);

export class ToolError extends Error {
  constructor(type, message, details) {
    super(`${type}: ${message}`);
    Object.assign(this, { name: "ToolError", type, details: details ?? {} });
  }
}

export function call(tool, given = {}) {
  const id = ++latest;
  const text = Buffer.from(JSON.stringify({ id, tool, arguments: given }));
  const data = Buffer.alloc(4 + text.length);
  data.writeUInt32BE(text.length);
  text.copy(data, 4);
  for (let at = 0; at < data.length; ) at += writeSync(number, data, at);
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    listen();
  });
}

function listen() {
  if (reading || waiting.size === 0) return;
  reading = true;
  const piece = Buffer.allocUnsafe(65536);
  readSome(number, piece, 0, piece.length, null, (error, size) => {
    reading = false;
    if (error || size === 0) {
      for (const { reject } of waiting.values()) reject(new ToolError("Closed", "the host takes no more calls"));
      waiting.clear();
      return;
    }
    held = Buffer.concat([held, piece.subarray(0, size)]);
    while (held.length >= 4 && held.length >= 4 + held.readUInt32BE(0)) {
      const end = 4 + held.readUInt32BE(0);
      settle(JSON.parse(held.toString("utf8", 4, end)));
      held = held.subarray(end);
    }
    listen();
  });
}

function settle({ id, value, error }) {
  const one = waiting.get(id);
  waiting.delete(id);
  if (error) one?.reject(new ToolError(error.type, error.message, error.details));
  else one?.resolve(value ?? null);
}
