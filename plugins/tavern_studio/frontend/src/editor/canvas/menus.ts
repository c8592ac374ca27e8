/** What a context menu is opened on. */
export type Under = "node" | "edge" | "canvas";

/** The groups of a context menu, by what is under the pointer: what is done with it most stands first. */
const GROUPS: Record<Under, string[][]> = {
  node: [
    ["runTo", "tryNode", "pin", "bypass"],
    ["connect", "enterGroup", "upgrade", "group", "ungroup", "loop", "takeOut"],
    ["cut", "copy", "paste", "pasteJoined", "duplicate", "delete"],
    ["align.left", "align.right", "align.top", "align.bottom", "distribute.x", "distribute.y", "arrange"],
    ["trace", "fitSelection"],
  ],
  edge: [["reroute", "straighten", "nameLink", "unnameLink"], ["trace"], ["delete"]],
  canvas: [
    ["add", "paste", "pasteJoined", "comment"],
    ["run", "interrupt", "resume"],
    ["arrange", "fit", "selectAll"],
    ["undo", "redo"],
    ["previews", "overview", "upgradeAll"],
    ["useAsTool", "export", "publish", "history", "assistant"],
  ],
};

/** Put commands into the groups of a menu; those of plugins are the last group, and what has no place there is left out. */
export function grouped<T extends { id: string; inContext?: boolean }>(commands: T[], under: Under): T[][] {
  const byId = new Map(commands.map((one) => [one.id, one]));
  const own = GROUPS[under].map((ids) => ids.flatMap((id) => byId.get(`editor.${id}`) ?? []));
  const others = commands.filter((one) => one.inContext && !one.id.startsWith("editor."));
  return [...own, others].filter((group) => group.length > 0);
}
