import { expect, test } from "vitest";
import { answerOf, linesOf } from "../src/chat/questions";
import { slotOf } from "../src/tools/schema";

const ASK = "system:request_user_interaction";

test("what came of a question is read from what its agent reads", () => {
  const done = (answer: unknown) => `Tool ${ASK} executed successfully. Output: ${JSON.stringify({ answer })}`;
  const failed = (type: string) => `Tool ${ASK} failed. Error type: ${type}. Message: why`;
  for (const answer of ["Ada", "two\nlines", ["a"], { city: "Ghent" }, false, 0])
    expect(answerOf(done(answer))).toEqual({ answer });
  expect(answerOf(failed("TimeoutError"))).toEqual({ why: "nobody" });
  expect(answerOf(failed("ApprovalRefused"))).toEqual({ why: "declined" });
  expect(answerOf(failed("Cancelled"))).toEqual({});
});

test("answers are shown as people read them", () => {
  expect(linesOf("Ada")).toBe("Ada");
  expect(linesOf(["News", "Recipe"])).toBe("News, Recipe");
  expect(linesOf({ city: "Ghent", copies: 2 })).toBe("city: Ghent\ncopies: 2");
  expect(linesOf(3)).toBe("3");
});

test("choices without a type are a list to choose from", () => {
  expect(slotOf("rhythm", { enum: ["weekly", "monthly"] })).toMatchObject({
    dataFlowType: "STRING",
    matchCategories: ["ComboOption"],
  });
});
