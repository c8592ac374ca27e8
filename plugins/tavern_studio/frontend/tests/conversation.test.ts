import { expect, test } from "vitest";
import { joinTraces, partsOf } from "../src/chat/conversation";

const step = (seq: number, kind: string, text = "") => ({ seq, kind, text, data: { toolId: "clock" } }) as never;

test("steps that were heard while a trace was read stay in it", () => {
  const read = [step(1, "started")];
  const heard = [step(2, "tool_call"), step(3, "observation", "noon")];
  const all = joinTraces(joinTraces(read, heard), [step(4, "reply", "It is noon.")]);
  expect(all.map((one) => one.seq)).toEqual([1, 2, 3, 4]);
  expect(partsOf(all).map((part) => part.kind)).toEqual(["call", "text"]);
});

test("a step that comes twice or late counts once, in its place", () => {
  const all = joinTraces([step(4, "reply"), step(2, "tool_call")], [step(3, "observation"), step(2, "tool_call")]);
  expect(all.map((one) => one.seq)).toEqual([2, 3, 4]);
});

test("calls that nodes of a drawn loop make are shown with their results", () => {
  const parts = partsOf([
    step(1, "thinking"),
    step(2, "tool_running"),
    step(3, "tool_output", "noon"),
    step(4, "thinking"),
    step(5, "tool_call"),
    step(6, "tool_running"),
    step(7, "tool_output", "one"),
  ]);
  expect(parts.map((part) => part.kind === "call" && part.call.result)).toEqual(["noon", "one"]);
});
