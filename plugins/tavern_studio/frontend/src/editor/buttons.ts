import { watch } from "vue";
import { connection, listen, send, type Message } from "../api/socket";
import { t } from "../i18n";
import { nodeOf, setValue } from "./document";
import type { Session } from "./session";

/** Buttons that were pressed and not answered yet, the earliest first. */
let pressed: { session: Session; node: string; button: string }[] = [];
let isListening = false;

/** Press a button of a node. What it changes of the node's inputs comes back, and is one step. */
export function pressButton(session: Session, id: string, button: string): void {
  const node = nodeOf(session.document.value, id);
  if (node === undefined) return;
  session.refused.delete(id);
  if (connection.value !== "open") return refuseAt(session, id);
  if (!isListening) {
    isListening = true;
    listen(["NODE_ACTION_RESULT"], take);
    listen(["error"], refuse);
  }
  pressed = [...pressed, { session, node: id, button }];
  send("button_click", {
    nodeId: id,
    buttonName: button,
    nodeType: node.type,
    workflowId: session.id,
    inputs: node.inputValues ?? {},
    config: node.configValues ?? {},
  });
}

/** Say at a node that the server is not there, until it is. */
function refuseAt(session: Session, id: string): void {
  session.refused.set(id, t("errors.unreachable"));
  const stop = watch(connection, (now) => {
    if (now !== "open") return;
    session.refused.delete(id);
    stop();
  });
}

function take({ payload }: Message): void {
  const found = pressed.find((one) => one.node === payload.nodeId && one.button === payload.buttonName);
  if (found === undefined) return;
  pressed = pressed.filter((one) => one !== found);
  const values = Object.entries((payload.inputValues ?? {}) as Record<string, unknown>);
  found.session.change(t("controls.pressed"), (before) =>
    values.reduce((next, [key, value]) => setValue(next, found.node, "inputValues", key, value), before),
  );
}

/** Errors do not say what they answer; the page sends nothing else that is refused. */
function refuse({ payload }: Message): void {
  if (pressed.length === 0) return;
  const [{ session, node }] = pressed as [(typeof pressed)[number]];
  pressed = pressed.slice(1);
  session.refused.set(node, String(payload.message));
}
