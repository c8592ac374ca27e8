/**
 * A node type as the server describes it, and what follows from that description alone. Where it comes from is in
 * `definitions.ts`.
 */
import type { Slot } from "./document";

/** A node type as `GET /api/nodes` has it. */
export interface NodeDefinition {
  type: string;
  namespace: string;
  category: string;
  displayName?: string;
  description?: string;
  inputs: Record<string, Slot>;
  outputs: Record<string, Slot>;
  configSchema?: Record<string, Slot>;
  modes?: Record<string, { displayName?: string; inputs?: Record<string, Slot>; outputs?: Record<string, Slot> }>;
  modeConfigKey?: string;
  defaultModeId?: string;
  tags?: string[];
  dynamicSlots?: boolean;
  width?: number;
  /** Whether it is there for trying the page, and not offered. */
  isTest?: boolean;
  /** By language, what its names and descriptions are in it. */
  texts?: Record<string, Record<string, string>>;
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
