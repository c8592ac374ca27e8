import { t } from "../i18n";
import { say } from "../kit/toasts";
import type { Command } from "../registry/commands";
import { nodeOf } from "./document";
import type { Session } from "./session";
import { upgradeNodes, type Upgrade } from "./upgrade";

/** The commands for nodes whose definitions have changed. */
export function upgradeCommands(session: Session): Command[] {
  const chosen = () => session.outdated.value.filter((id) => session.selected.value.has(id));
  return [
    {
      id: "editor.upgrade",
      title: "editor.upgrade",
      keys: "u",
      when: () => chosen().length > 0,
      run: () => upgrade(session, chosen()),
    },
    {
      id: "editor.upgradeAll",
      title: "editor.upgradeAll",
      keys: "shift+u",
      when: () => session.outdated.value.length > 0,
      run: () => upgrade(session, session.outdated.value),
    },
  ];
}

/** Bring nodes to what their definitions are now, as one step, and tell what became of their slots. */
export function upgrade(session: Session, ids: string[]): void {
  const done = upgradeNodes(session.document.value, ids, (document, node) => session.slotsIn(document, node));
  session.change(t("editor.upgrade"), () => done.document);
  say(report(session, done));
}

function report(session: Session, { document, mapped, removed }: Upgrade): string {
  const isOne = new Set([...mapped, ...removed].map((one) => one.node)).size === 1;
  const at = (id: string) => {
    const node = nodeOf(document, id);
    return isOne || !node ? "" : `${session.titleOf(node)}: `;
  };
  const kept = [...new Set(mapped.map((one) => `${at(one.node)}${one.from} → ${one.to}`))];
  const lost = [...new Set(removed.map((one) => `${at(one.node)}${one.slot}`))];
  const lines = [
    kept.length > 0 && t("editor.gone.mapped", { slots: kept.join(", ") }),
    lost.length > 0 && t("editor.gone.removed", { slots: lost.join(", ") }),
  ];
  return lines.filter(Boolean).join(" ");
}
