import { t } from "../i18n";
import { attempt, say } from "../kit/toasts";
import { download } from "../kit/files";
import { registerCommands } from "../registry/commands";
import { copyOf, joinOuter, pasteInto, readClipboard, writeClipboard } from "./clipboard";
import { changeNode, nodeOf, removeEdges, removeNodes, type WorkflowDocument } from "./document";
import type { PickOptions } from "./panels/picking";
import { lastInputs, mayPin, pinsOf, wholeOutputs, withPins } from "./pins";
import { inputsKept, missingInputs } from "./runinputs";
import type { Outputs } from "./running";
import type { Session } from "./session";
import { libraryIsOpen, sideIsOpen } from "./viewing";
import { copyLink, exportPicture } from "../sharing/importing";

const RUN = "POST /api/prompt";

/** What the commands open on the page. */
interface Opens {
  add(options?: PickOptions): void;
  connect(): void;
}

/** Register what can be done with an open workflow; the function that is returned takes it away. */
export function useEditorCommands(session: Session, opens: Opens): () => void {
  const some = () => session.selected.value.size > 0;
  const one = () => session.selected.value.size === 1;
  function toggle(side: "history" | "assistant"): void {
    session.side.value = session.side.value === side && sideIsOpen.value ? undefined : side;
    sideIsOpen.value = true;
  }
  const any = () => some() || session.selectedEdges.value.size > 0;

  /** What the last run was given beside pins: the inputs of a node that was tried alone. */
  let lent: { run?: string; given: Outputs } = { given: {} };

  async function run(targets: string[] = [], given: Outputs = {}): Promise<void> {
    const document = session.document.value;
    const overrides = { ...given, ...pins(document) };
    for (const target of targets) delete overrides[target];
    if (targets.length === 0 && missingInputs(document, inputsKept(session)).length > 0) return session.askInputs();
    await attempt(() => session.running.start(document, inputsKept(session), targets, overrides));
    lent = { run: session.running.runId.value, given };
  }

  /** Continue the run that is shown with what is on the canvas now. */
  async function resume(): Promise<void> {
    const document = session.document.value;
    const given = lent.run === session.running.runId.value ? lent.given : {};
    const overrides = { ...given, ...pins(document) };
    const kept = await attempt(() => session.running.resume(document, inputsKept(session), overrides));
    if (kept === undefined) return;
    lent = { run: session.running.runId.value, given };
    say(t("editor.resumed", { count: kept.length }));
  }

  /** Run the selected node with the inputs that it had in the run that is shown. */
  async function tryNode(): Promise<void> {
    const [id] = session.selected.value;
    if (id !== undefined) await run([id], lastInputs(session.document.value, session.running, id));
  }

  const pins = (document: WorkflowDocument) => pinsOf(document, (id) => session.slotsOf(id));
  const isPinned = (id: string) => nodeOf(session.document.value, id)?.pinnedOutputs !== undefined;

  function canPin(id: string): boolean {
    const node = nodeOf(session.document.value, id);
    const output = session.running.nodes.get(id)?.output;
    return (
      isPinned(id) ||
      (node !== undefined && mayPin(session.document.value, node) && output != null && Object.keys(output).length > 0)
    );
  }

  /** Pin what the selected nodes gave, or let it go where all of them are pinned. */
  async function pin(): Promise<void> {
    const ids = [...session.selected.value].filter(canPin);
    const isOn = !ids.every(isPinned);
    const wanted = isOn ? ids.filter((id) => !isPinned(id)) : ids;
    const outputs = await attempt(() =>
      Promise.all(wanted.map(async (id) => (isOn ? wholeOutputs(session.running, id) : undefined))),
    );
    if (outputs === undefined) return;
    session.change(t(isOn ? "editor.pin" : "editor.unpin"), (document) =>
      wanted.reduce((next, id, index) => withPins(next, id, outputs[index]), document),
    );
  }

  function remove(): void {
    session.change(t("editor.delete"), (document) =>
      removeNodes(removeEdges(document, session.selectedEdges.value), session.selected.value),
    );
  }

  function bypass(): void {
    session.change(t("editor.bypass"), (document) =>
      [...session.selected.value].reduce(
        (next, id) => changeNode(next, id, (node) => ({ bypassed: !node.bypassed })),
        document,
      ),
    );
  }

  async function copy(done?: string): Promise<void> {
    await attempt(
      () => writeClipboard(copyOf(session.document.value, session.selected.value, session, session.id)),
      done,
    );
  }

  /** Paste what was copied; from another workflow, or where that is asked for, with the edges that it had to other nodes. */
  async function paste(isJoined = false): Promise<void> {
    const copied = await attempt(readClipboard);
    if (copied === undefined) return;
    const { document: pasted, renamed } = pasteInto(session.document.value, copied);
    const joined = isJoined || copied.tavernFrom !== session.id ? joinOuter(pasted, copied, renamed, session) : pasted;
    session.change(t("editor.paste"), () => joined);
    session.selected.value = new Set(renamed.values());
    const count = joined.edges.length - pasted.edges.length;
    if (count > 0) say(t("editor.joined", { count }));
  }

  async function publish(): Promise<void> {
    if (await attempt(() => session.persistence.publish())) say(t("editor.published"));
  }

  return registerCommands(
    { id: "editor.run", title: "editor.run", keys: "mod+enter", needs: RUN, run: () => run() },
    { id: "editor.runTo", title: "editor.runTo", needs: RUN, when: some, run: () => run([...session.selected.value]) },
    { id: "editor.tryNode", title: "editor.tryNode", keys: "shift+enter", needs: RUN, when: one, run: tryNode },
    {
      id: "editor.pin",
      title: "editor.pin",
      keys: "p",
      when: () => [...session.selected.value].some(canPin),
      run: pin,
    },
    {
      id: "editor.interrupt",
      title: "editor.stop",
      keys: "mod+.",
      needs: "DELETE /api/interrupt/{promptId}",
      when: () => session.running.isActive.value,
      run: () => attempt(() => session.running.interrupt()),
    },
    {
      id: "editor.resume",
      title: "editor.resume",
      needs: "POST /api/runs/{runId}/resume",
      when: () => ["error", "interrupted"].includes(session.running.status.value ?? ""),
      run: resume,
    },
    {
      id: "editor.publish",
      title: "editor.publish",
      keys: "mod+s",
      needs: "PUT /api/workflows/{workflowId}",
      run: publish,
    },
    {
      id: "editor.history",
      title: "editor.history.title",
      keys: "mod+shift+h",
      run: () => toggle("history"),
    },
    {
      id: "editor.assistant",
      title: "assistant.title",
      keys: "mod+i",
      needs: "POST /api/assistant/requests",
      run: () => toggle("assistant"),
    },
    {
      id: "editor.side",
      title: "editor.side",
      keys: "mod+shift+i",
      run: () => (sideIsOpen.value = !sideIsOpen.value),
    },
    {
      id: "editor.library",
      title: "editor.library",
      keys: "mod+shift+l",
      run: () => (libraryIsOpen.value = !libraryIsOpen.value),
    },
    { id: "editor.add", title: "editor.add", keys: "a mod+space", run: () => opens.add() },
    { id: "editor.picture", title: "sharing.picture", run: () => exportPicture(session.id) },
    { id: "editor.link", title: "sharing.link", run: () => copyLink(`/workflows/${session.id}`) },
    { id: "editor.export", title: "editor.export", run: () => download(`${session.id}.json`, session.document.value) },
    { id: "editor.connect", title: "editor.connect", keys: "c", when: one, run: () => opens.connect() },
    {
      id: "editor.undo",
      title: "editor.undo",
      keys: "mod+z",
      when: () => !!session.undoLabel.value,
      run: () => session.undo(),
    },
    {
      id: "editor.redo",
      title: "editor.redo",
      keys: "mod+shift+z mod+y",
      when: () => !!session.redoLabel.value,
      run: () => session.redo(),
    },
    { id: "editor.copy", title: "editor.copy", keys: "mod+c", when: some, run: () => copy(t("kit.copied")) },
    { id: "editor.cut", title: "editor.cut", keys: "mod+x", when: some, run: () => copy(t("kit.copied")).then(remove) },
    { id: "editor.paste", title: "editor.paste", keys: "mod+v", run: () => paste() },
    { id: "editor.pasteJoined", title: "editor.pasteJoined", keys: "mod+shift+v", run: () => paste(true) },
    {
      id: "editor.duplicate",
      title: "editor.duplicate",
      keys: "mod+d",
      when: some,
      run: () => copy().then(() => paste()),
    },
    { id: "editor.delete", title: "editor.delete", keys: "delete backspace", when: any, run: remove },
    { id: "editor.bypass", title: "editor.bypass", keys: "b", when: some, run: bypass },
    {
      id: "editor.selectAll",
      title: "editor.selectAll",
      keys: "mod+a",
      run: () => (session.selected.value = new Set(session.document.value.nodes.map((node) => node.id))),
    },
  );
}
