/**
 * A node type as the server describes it, and what follows from that description alone. Where it comes from is in
 * `definitions.ts`.
 */
import type { components } from "../api/schema";
import type { Slot } from "./document";

/** A node type as `GET /api/nodes` has it. */
export type NodeDefinition = components["schemas"]["NodeDefinition"] & {
  category: string;
  inputs: Record<string, Slot>;
  outputs: Record<string, Slot>;
  tags?: string[];
  /** Whether it is there for trying the page, and not offered. */
  isTest?: boolean;
};

/** The slots that a node type has in a mode; its own where it has no such mode. */
export function slotsInMode(definition: NodeDefinition, mode: string | undefined) {
  const { inputs = {}, outputs = {} } = definition.modes?.[mode ?? ""] ?? definition;
  return { inputs, outputs };
}

/** The name of a node type without what only decorates it. */
export function nameOf(definition: NodeDefinition | undefined, type: string): string {
  return definition?.displayName?.replace(/^\p{Extended_Pictographic}️?\s*/u, "") || type.replace(/^.*:/, "");
}

export const fullType = (definition: NodeDefinition) => `${definition.namespace}:${definition.type}`;

/** Node types that are there for trying the page are not offered: their category or a tag says so, in whatever language. */
export function isTest(definition: NodeDefinition): boolean {
  return (
    /^TEST\b/.test(definition.category ?? "") ||
    definition.type.startsWith("Test") ||
    Boolean(definition.tags?.includes("test"))
  );
}
