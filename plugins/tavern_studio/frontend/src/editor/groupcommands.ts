import { ref } from "vue";
import { api, ask, askWhole } from "../api/client";
import { t } from "../i18n";
import { attempt, refuse } from "../kit/toasts";
import type { Command } from "../registry/commands";
import { asDocument, NODE_GROUP, nodeOf } from "./document";
import { groupFile } from "./groupfile";
import { makeGroup, moveInto, unpackGroup, whyNoGroup, wrapInLoop } from "./grouping";
import type { Session } from "./session";

/** Whether the page asks for the name of a new group. */
export const namingGroup = ref(false);

/** The commands for groups and loops. `go` shows another view. */
export function groupCommands(session: Session, go: (path: string) => void): Command[] {
  const chosen = () => [...session.selected.value];
  const slotsOf = (id: string) => session.slotsOf(id);
  const group = () => {
    const [id, ...others] = chosen();
    const node = id === undefined || others.length > 0 ? undefined : nodeOf(session.document.value, id);
    return node?.type === NODE_GROUP ? node : undefined;
  };
  const reference = () => String(group()?.configValues?.referencedWorkflowId ?? "");
  const inLoop = () => chosen().some((id) => nodeOf(session.document.value, id)?.parentNode);

  function begin(): void {
    const why = whyNoGroup(session.document.value, chosen());
    if (why) refuse(t(why));
    else namingGroup.value = true;
  }

  async function unpack(): Promise<void> {
    const node = group();
    if (node === undefined) return;
    const path = { workflowId: reference() };
    const inner = await attempt(() => ask(api.GET("/api/workflows/{workflowId}", { params: { path } })));
    if (inner === undefined) return;
    const unpacked = unpackGroup(session.document.value, node.id, asDocument(inner));
    session.change(t("editor.groups.unpack"), () => unpacked.document);
    session.selected.value = new Set(unpacked.ids);
  }

  function loop(): void {
    const why = whyNoGroup(session.document.value, chosen());
    if (why) return refuse(t(why));
    const wrapped = wrapInLoop(session.document.value, chosen(), slotsOf);
    session.change(t("editor.groups.loop"), () => wrapped.document);
    session.selected.value = new Set([wrapped.id]);
  }

  function takeOut(): void {
    session.change(t("editor.groups.takeOut"), (document) =>
      chosen().reduce((next, id) => {
        const zone = nodeOf(next, id)?.parentNode;
        return zone ? moveInto(next, id, nodeOf(next, zone)?.parentNode ?? null) : next;
      }, document),
    );
  }

  /** A workflow with an interface is a tool as soon as it is published: show it there, to be tried and given to agents. */
  async function useAsTool(): Promise<void> {
    const { interfaceInputs, interfaceOutputs } = session.document.value;
    if (!Object.keys({ ...interfaceInputs, ...interfaceOutputs }).length) return refuse(t("editor.noInterface"));
    if (session.isChanged.value && !(await attempt(() => session.persistence.publish()))) return;
    go(`/tools/workflow:${session.id}`);
  }

  const some = () => session.selected.value.size > 0;
  return [
    { id: "editor.useAsTool", title: "editor.useAsTool", run: useAsTool },
    {
      id: "editor.group",
      title: "editor.groups.make",
      keys: "mod+g",
      needs: "POST /api/workflows",
      when: some,
      run: begin,
    },
    {
      id: "editor.enterGroup",
      title: "editor.groups.enter",
      keys: "shift+g",
      when: () => reference() !== "",
      run: () => go(`/workflows/${reference()}`),
    },
    {
      id: "editor.ungroup",
      title: "editor.groups.unpack",
      keys: "mod+shift+g",
      when: () => reference() !== "",
      run: unpack,
    },
    { id: "editor.loop", title: "editor.groups.loop", keys: "l", when: some, run: loop },
    { id: "editor.takeOut", title: "editor.groups.takeOut", keys: "shift+l", when: inLoop, run: takeOut },
  ];
}

/** Save the selected nodes as a workflow of a name, and put a group of it in their place. */
export async function groupSelected(session: Session, name: string): Promise<void> {
  const { made, put } = makeGroup(session.document.value, session.selected.value, name, (id) => session.slotsOf(id));
  const saved = await attempt(() => askWhole(api.POST("/api/workflows", { body: made as never })));
  if (saved === undefined) return;
  const reference = String((saved.data as { id?: unknown }).id);
  const { document, id } = put(reference);
  const file = groupFile({ ...made, id: reference }, saved.response.headers.get("ETag") ?? "");
  session.change(t("editor.groups.make"), () => document, undefined, file);
  session.selected.value = new Set([id]);
}
