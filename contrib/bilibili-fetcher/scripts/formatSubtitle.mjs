// Writes subtitles as SRT, WebVTT or plain text: JSON on stdin, JSON on stdout.

import { readFileSync } from "node:fs";

const { lines, format = "srt" } = JSON.parse(readFileSync(0, "utf8"));

function clock(seconds, point) {
  const total = Math.round(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const time = [total / 3_600_000, (total / 60_000) % 60, (total / 1000) % 60].map((part) => two(Math.floor(part)));
  return `${time.join(":")}${point}${String(total % 1000).padStart(3, "0")}`;
}

// An empty line would end a subtitle, and --> would begin another one.
const plain = (text) => text.replace(/\r/g, "").replace(/\n{2,}/g, "\n").replaceAll("-->", "→");

const writers = {
  srt: () =>
    lines
      .map((line, at) => `${at + 1}\n${clock(line.from, ",")} --> ${clock(line.to, ",")}\n${plain(line.content)}\n`)
      .join("\n"),
  vtt: () =>
    ["WEBVTT\n"]
      .concat(lines.map((line) => `${clock(line.from, ".")} --> ${clock(line.to, ".")}\n${plain(line.content)}\n`))
      .join("\n"),
  text: () => lines.map((line) => line.content).join("\n"),
};

console.log(JSON.stringify({ format, text: writers[format]() }));
