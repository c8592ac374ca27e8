import { ref } from "vue";
import { t } from "../i18n";
import type { Command } from "../registry/commands";
import { linkNameOf, nameLinks, pointsOf, straighten } from "./links";
import type { Session } from "./session";

/** Whether the page asks for the name of the selected links. */
export const namingLinks = ref(false);

/** The commands for how edges are drawn, and for the paths that they make. */
export function linkCommands(session: Session): Command[] {
  const chosen = () => session.document.value.edges.filter((edge) => session.selectedEdges.value.has(edge.id));
  return [
    {
      id: "editor.straighten",
      title: "editor.links.straighten",
      keys: "shift+r",
      when: () => chosen().some((edge) => pointsOf(edge).length),
      run: () =>
        session.change(t("editor.links.straighten"), (document) => straighten(document, session.selectedEdges.value)),
    },
    {
      id: "editor.nameLink",
      title: "editor.links.name",
      keys: "n",
      when: () => chosen().length > 0,
      run: () => (namingLinks.value = true),
    },
    {
      id: "editor.unnameLink",
      title: "editor.links.unname",
      keys: "shift+n",
      when: () => chosen().some(linkNameOf),
      run: () =>
        session.change(t("editor.links.unname"), (document) =>
          nameLinks(document, session.selectedEdges.value, undefined),
        ),
    },
    {
      id: "editor.trace",
      title: "editor.links.trace",
      keys: "h",
      run: () => (session.isTracing.value = !session.isTracing.value),
    },
  ];
}
