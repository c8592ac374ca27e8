import { describe, expect, it } from "vitest";
import {
  documentOf,
  freeName,
  having,
  isSimple,
  languageOf,
  nameOf,
  newSource,
  problemsAt,
  rowsOf,
  said,
  schemaOf,
  textOf,
  withDraft,
} from "../src/tools/toolfile";

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", description: "Whom.", minLength: 1 },
    mood: { type: ["string", "null"] },
    n: { type: "integer", default: 2 },
  },
  required: ["name"],
  additionalProperties: false,
};

describe("a document", () => {
  it("keeps all that a change is not about", () => {
    const document = { id: "a", x: [1], securityContext: { networkAccess: { allowHosts: ["h"] }, other: 1 } };
    expect(having(document, ["id"], "b")).toEqual({ ...document, id: "b" });
    expect(having(document, ["securityContext", "fileAccess", "allowRead"], ["self"])).toMatchObject({
      x: [1],
      securityContext: { other: 1, fileAccess: { allowRead: ["self"] } },
    });
  });

  it("loses what is left empty", () => {
    const document = { id: "a", securityContext: { networkAccess: { allowHosts: ["h"] } } };
    expect(having(document, ["securityContext", "networkAccess", "allowHosts"], undefined)).toEqual({ id: "a" });
  });

  it("is none where a form would lose something", () => {
    expect(documentOf('{"id": "a"} // of mine')).toBeUndefined();
    expect(documentOf("[1]")).toBeUndefined();
    expect(documentOf(textOf({ id: "a" }))).toEqual({ id: "a" });
  });

  it("has the language of its script", () => {
    expect(languageOf({ implementation: { type: "script", scriptPath: "a/b.mjs" } })).toBe("nodejs");
    expect(languageOf({ handler: { type: "script", scriptPath: "a.ts", language: "python" } })).toBe("python");
    expect(languageOf(documentOf(newSource("script").text)!)).toBe("python");
  });

  it("has a name that a file may have", () => {
    expect([nameOf("text:Greet"), nameOf("../../etc"), nameOf("问候"), nameOf("Ns.Name_2")]).toEqual([
      "text-greet",
      "etc",
      "问候",
      "ns-name-2",
    ]);
  });
});

describe("rows of parameters", () => {
  it("come back as the schema that they were", () => {
    expect(schemaOf(SCHEMA, rowsOf(SCHEMA))).toEqual(SCHEMA);
    expect(rowsOf(SCHEMA).map(isSimple)).toEqual([false, false, true]);
  });

  it("change what is shown of them alone", () => {
    const rows = rowsOf(SCHEMA).map((row) => (row.name === "name" ? { ...row, name: "who", required: false } : row));
    expect(schemaOf(SCHEMA, rows)).toEqual({
      type: "object",
      additionalProperties: false,
      properties: { who: SCHEMA.properties.name, mood: SCHEMA.properties.mood, n: SCHEMA.properties.n },
    });
  });

  it("lose a default that is of another type", () => {
    const rows = rowsOf(SCHEMA).map((row) => (row.name === "n" ? { ...row, type: "boolean" } : row));
    expect((schemaOf(SCHEMA, rows).properties as Record<string, unknown>).n).toEqual({ type: "boolean" });
  });

  it("are read out of anything", () => {
    for (const schema of [undefined, null, 3, {}, { properties: [] }, { properties: { a: true } }])
      expect(rowsOf(schema).every((row) => row.type === "any")).toBe(true);
    expect(freeName(rowsOf({ properties: { value: {}, value2: {} } }))).toBe("value3");
  });
});

describe("a draft", () => {
  const draft = {
    entryPoint: "greet",
    displayName: "Greet",
    description: "Greets.",
    parameters: SCHEMA,
    output: { type: "string" },
    notes: [],
  } as never;

  it("fills in what nobody wrote", () => {
    const found = withDraft({ id: "a", implementation: { type: "script", scriptPath: "a.py" } }, draft);
    expect(found).toMatchObject({
      id: "a",
      displayName: "Greet",
      description: "Greets.",
      parameters: SCHEMA,
      implementation: { scriptPath: "a.py", entryPoint: "greet" },
    });
  });

  it("keeps the words of a person", () => {
    const mine = {
      id: "a",
      description: "Mine.",
      handler: { type: "script" },
      parameters: { properties: { n: { description: "How many." } } },
    };
    const found = withDraft(mine, draft);
    expect(found.description).toBe("Mine.");
    expect(rowsOf(found.parameters).map((row) => row.description)).toEqual(["Whom.", "", "How many."]);
  });
});

describe("problems", () => {
  it("stand at their fields", () => {
    const problem = {
      message: "$.parameters.properties.a.type: expected one of",
      location: ["parameters", "properties", "a", "type"],
      warning: false,
    };
    const inCode = { message: "invalid syntax", location: ["code"], line: 3, warning: true };
    expect(problemsAt([problem, inCode] as never, "parameters")).toEqual([problem]);
    expect([said(problem as never), said(inCode as never)]).toEqual(["expected one of", "3: invalid syntax"]);
  });
});
