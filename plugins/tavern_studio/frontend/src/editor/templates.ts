import { GROUP_INPUT, GROUP_OUTPUT, LOOP, type Slot, type WorkflowDocument } from "./document";

type Template = (name: string) => WorkflowDocument;

export const emptyWorkflow: Template = (name) => ({
  name,
  nodes: [
    { id: "input", type: GROUP_INPUT, position: { x: 0, y: 120 } },
    { id: "output", type: GROUP_OUTPUT, position: { x: 640, y: 120 } },
  ],
  edges: [],
  interfaceInputs: {},
  interfaceOutputs: {},
});

const text: Template = (name) => ({
  ...emptyWorkflow(name),
  nodes: [
    { id: "input", type: GROUP_INPUT, position: { x: 0, y: 120 } },
    { id: "upper-case", type: "core:UpperCase", position: { x: 300, y: 120 } },
    { id: "output", type: GROUP_OUTPUT, position: { x: 600, y: 120 } },
  ],
  edges: [
    { id: "e1", source: "input", sourceHandle: "text", target: "upper-case", targetHandle: "text" },
    { id: "e2", source: "upper-case", sourceHandle: "text", target: "output", targetHandle: "text" },
  ],
  interfaceInputs: { text: { key: "text", dataFlowType: "STRING", displayName: "Text", config: { default: "hello" } } },
  interfaceOutputs: { text: { key: "text", dataFlowType: "STRING", displayName: "Text" } },
});

const model: Template = (name) => ({
  ...emptyWorkflow(name),
  nodes: [
    { id: "input", type: GROUP_INPUT, position: { x: 0, y: 120 } },
    { id: "message", type: "core:CreateMessage", position: { x: 280, y: 120 }, inputValues: { role: "user" } },
    { id: "model", type: "core:LlmApiRequest", position: { x: 580, y: 120 } },
    { id: "output", type: GROUP_OUTPUT, position: { x: 940, y: 120 } },
  ],
  edges: [
    { id: "e1", source: "input", sourceHandle: "question", target: "message", targetHandle: "content" },
    { id: "e2", source: "message", sourceHandle: "messages", target: "model", targetHandle: "messages" },
    { id: "e3", source: "model", sourceHandle: "text", target: "output", targetHandle: "answer" },
  ],
  interfaceInputs: {
    question: { key: "question", dataFlowType: "STRING", displayName: "Question", config: { multiline: true } },
  },
  interfaceOutputs: { answer: { key: "answer", dataFlowType: "STRING", displayName: "Answer" } },
});

const FLOAT: Slot = { dataFlowType: "FLOAT" };

const loop: Template = (name) => ({
  ...emptyWorkflow(name),
  nodes: [
    { id: "input", type: GROUP_INPUT, position: { x: 0, y: 120 } },
    {
      id: "loop",
      type: LOOP,
      position: { x: 260, y: 40 },
      width: 760,
      height: 280,
      configValues: {
        carried: [{ key: "number", dataFlowType: "FLOAT", initial: 1 }],
        perIteration: [{ key: "number", dataFlowType: "FLOAT" }],
        conditionSlot: "enough",
        maxIterations: 50,
      },
    },
    {
      id: "twice",
      type: "core:MathOperation",
      parentNode: "loop",
      position: { x: 150, y: 70 },
      configValues: { operationMode: "add" },
    },
    {
      id: "compare",
      type: "core:Compare",
      parentNode: "loop",
      position: { x: 410, y: 70 },
      inputValues: { b: 100 },
      configValues: { operator: ">" },
    },
    { id: "output", type: GROUP_OUTPUT, position: { x: 1100, y: 120 } },
  ],
  edges: [
    { id: "e1", source: "input", sourceHandle: "start", target: "loop", targetHandle: "in__number" },
    { id: "e2", source: "loop", sourceHandle: "in__number", target: "twice", targetHandle: "a" },
    { id: "e3", source: "loop", sourceHandle: "in__number", target: "twice", targetHandle: "b" },
    { id: "e4", source: "twice", sourceHandle: "result", target: "loop", targetHandle: "next__number" },
    { id: "e5", source: "twice", sourceHandle: "result", target: "loop", targetHandle: "each__number" },
    { id: "e6", source: "twice", sourceHandle: "result", target: "compare", targetHandle: "a" },
    { id: "e7", source: "compare", sourceHandle: "result", target: "loop", targetHandle: "enough" },
    { id: "e8", source: "loop", sourceHandle: "list__number", target: "output", targetHandle: "numbers" },
  ],
  interfaceInputs: { start: { ...FLOAT, key: "start", displayName: "Start", config: { default: 1 } } },
  interfaceOutputs: { numbers: { dataFlowType: "ARRAY", key: "numbers", displayName: "Numbers" } },
});

/** What a new workflow can begin with, by the key of its name. */
export const templates: Record<string, Template> = { empty: emptyWorkflow, text, model, loop };

/** Whether nothing was drawn yet but the two ends of a workflow. */
export function isBare(document: WorkflowDocument): boolean {
  return (
    document.edges.length === 0 &&
    document.nodes.every((node) => node.type === GROUP_INPUT || node.type === GROUP_OUTPUT)
  );
}

/** Let a workflow that is bare begin with a template; its name, description and comments stay. */
export function beginWith(document: WorkflowDocument, key: string): WorkflowDocument {
  const { nodes, edges, interfaceInputs, interfaceOutputs } = (templates[key] ?? emptyWorkflow)(document.name ?? "");
  return { ...document, nodes, edges, interfaceInputs, interfaceOutputs };
}
