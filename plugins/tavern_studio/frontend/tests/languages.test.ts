import { expect, test } from "vitest";
import { inLanguage } from "../src/editor/languages";
import type { NodeDefinition } from "../src/editor/nodetypes";

test("texts of a definition are translated, its data is not", () => {
  const definition = {
    type: "Trim",
    namespace: "core",
    displayName: "Trim",
    category: "constructor",
    description: "",
    configValues: { label: "Trim" },
    inputs: {
      configValues: {
        dataFlowType: "OBJECT",
        displayName: "Trim",
        config: {
          label: "Trim",
          default: { label: "Trim", texts: "Trim" },
          suggestions: [{ label: "Trim", value: { label: "Trim" } }],
        },
      },
    },
    outputs: { texts: { dataFlowType: "STRING", displayName: "Trim" } },
    texts: { zh: { Trim: "去除空白" } },
  } as unknown as NodeDefinition;
  const said = inLanguage(definition, "zh") as unknown as typeof definition & Record<string, never>;
  expect(said).toEqual({
    ...definition,
    displayName: "去除空白",
    inputs: {
      configValues: {
        dataFlowType: "OBJECT",
        displayName: "去除空白",
        config: {
          label: "去除空白",
          default: { label: "Trim", texts: "Trim" },
          suggestions: [{ label: "去除空白", value: { label: "Trim" } }],
        },
      },
    },
    outputs: { texts: { dataFlowType: "STRING", displayName: "去除空白" } },
  });
  expect(inLanguage(definition, "en")).toBe(definition);
});
