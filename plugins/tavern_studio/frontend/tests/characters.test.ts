import { expect, it } from "vitest";
import { changesOf, clashesOf, fieldsOf, greetingsOf, moved, withGreetings } from "../src/characters/editing";

const MIRA = fieldsOf({
  name: "Mira",
  firstMes: "Come in!",
  alternateGreetings: ["Closed.", "又是你？"],
  tags: ["inn"],
});

it("sends the fields that were changed, and no others", () => {
  expect(changesOf(MIRA, structuredClone(MIRA))).toEqual({});
  expect(changesOf(MIRA, { ...MIRA, tags: ["inn", "rain"], scenario: "Rain." })).toEqual({
    scenario: "Rain.",
    tags: ["inn", "rain"],
  });
});

it("names what was changed here and elsewhere", () => {
  const mine = { ...MIRA, scenario: "Rain.", name: "Mira Vale", personality: "Warm." };
  const theirs = { ...MIRA, scenario: "Snow.", description: "An innkeeper.", personality: "Warm." };
  expect(clashesOf(MIRA, mine, theirs)).toEqual(["scenario"]);
  expect(clashesOf(MIRA, mine, MIRA)).toEqual([]);
});

it("lists the greeting with the alternate ones", () => {
  const texts = greetingsOf(MIRA);
  expect(texts).toEqual(["Come in!", "Closed.", "又是你？"]);
  expect(withGreetings(MIRA, texts)).toEqual(MIRA);
  expect(withGreetings(MIRA, texts.slice(1))).toMatchObject({ firstMes: "Closed.", alternateGreetings: ["又是你？"] });
  expect(withGreetings(MIRA, [])).toMatchObject({ firstMes: "", alternateGreetings: [] });
  expect(greetingsOf(fieldsOf({}))).toEqual([""]);
});

it("moves a greeting", () => {
  expect(moved(["a", "b", "c"], 2, 0)).toEqual(["c", "a", "b"]);
  expect(moved(["a", "b", "c"], 0, 1)).toEqual(["b", "a", "c"]);
});
