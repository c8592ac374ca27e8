import { GROUP_INPUT, GROUP_OUTPUT, type WorkflowDocument } from "./document";

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

/** What a new workflow can begin with, by the key of its name. */
export const templates: Record<string, Template> = { empty: emptyWorkflow, text, model };
