import type { Schemas } from "../api/client";

type TreeNode = Schemas["HistoryNode"];

/** A message of a conversation's tree in a list: `level` is how many times the way to it has parted. */
export interface Row {
  node: TreeNode;
  level: number;
}

/** The messages of a tree in the order in which they are read: each with what follows it, the versions beside it behind that. */
export function rowsOf(tree: readonly TreeNode[]): Row[] {
  const children = new Map<string, TreeNode[]>();
  const known = new Set(tree.map((node) => node.id));
  for (const node of tree) {
    const parent = node.parentId && known.has(node.parentId) ? node.parentId : "";
    children.set(parent, [...(children.get(parent) ?? []), node]);
  }
  const rows: Row[] = [];
  // A stack, not calls within calls: a conversation may be thousands of messages deep.
  const open = layer(children, "", 0);
  for (let row = open.pop(); row !== undefined; row = open.pop()) {
    rows.push(row);
    open.push(...layer(children, row.node.id, row.level));
  }
  return rows;
}

/** What comes behind a message, the first one last; where there are several, each is a level deeper. */
function layer(children: Map<string, TreeNode[]>, parent: string, level: number): Row[] {
  const nodes = children.get(parent) ?? [];
  return nodes.map((node) => ({ node, level: level + Number(nodes.length > 1) })).reverse();
}
