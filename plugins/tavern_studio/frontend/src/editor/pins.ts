import { shallowReactive } from "vue";
import { GROUP_INPUT, indexOf, nodeOf, type WorkflowDocument } from "./document";
import type { Outputs, Running } from "./running";

/** Outputs that runs take in the place of what their nodes would give, until they are let go. */
export class Pins {
  readonly nodes = shallowReactive(new Map<string, Record<string, unknown>>());

  /** The pinned outputs of nodes that are there and not bypassed. */
  of(document: WorkflowDocument): Outputs {
    const kept = [...this.nodes].filter(([id]) => {
      const node = nodeOf(document, id);
      return node !== undefined && !node.bypassed;
    });
    return Object.fromEntries(kept);
  }
}

/** What the last run gave the nodes that feed one: with it that node runs alone, with the inputs that it had. */
export function lastInputs(document: WorkflowDocument, running: Running, id: string): Outputs {
  const found: Outputs = {};
  for (const edge of indexOf(document).into.get(id) ?? []) {
    const source = nodeOf(document, edge.source);
    const output = running.nodes.get(edge.source)?.output;
    const isAlone = source?.type === GROUP_INPUT || source?.bypassed || source?.parentNode;
    if (source !== undefined && !isAlone && output != null) found[source.id] = output;
  }
  return found;
}
