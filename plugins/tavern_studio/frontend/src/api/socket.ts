import { ref, type Ref } from "vue";
import { api } from "./client";
import { page } from "./page";

/** A message of the server's socket; see docs/websocket.md. */
export interface Message {
  type: string;
  payload: Record<string, unknown>;
  seq?: number;
}

type Listener = (message: Message) => void;

/** How the connection stands; `lost` until it is there again. */
export const connection: Ref<"connecting" | "open" | "lost"> = ref("connecting");

const listeners = new Map<string, Set<Listener>>();
const again = new Set<() => void>();
let socket: WebSocket | undefined;
let wait = 500;
let seq: number | undefined;
let epoch = "";
/** Whether something was read before the socket was there: what happened since then is not heard. */
let isLate = false;

api.use({
  onResponse({ schemaPath }) {
    if (seq === undefined && schemaPath !== "/api/me") isLate ||= socket?.readyState !== WebSocket.OPEN;
    return undefined;
  },
});

/** Hear messages of some types (`NODE_*` is all that begin so) until the function that is returned is called. */
export function listen(types: string[], listener: Listener): () => void {
  for (const type of types) {
    if (!listeners.has(type)) listeners.set(type, new Set());
    listeners.get(type)?.add(listener);
  }
  return () => types.forEach((type) => listeners.get(type)?.delete(listener));
}

/** Call a function whenever messages were missed, so that what is shown is to be asked for once more. */
export function onMissed(reload: () => void): () => void {
  again.add(reload);
  return () => again.delete(reload);
}

export function send(type: string, payload: Record<string, unknown>): void {
  socket?.send(JSON.stringify({ type, payload }));
}

/** Connect, and again after each loss: what was missed is asked for by the number of the last message. */
export function connect(): void {
  const query = new URLSearchParams({ projectId: page.project.id });
  if (seq !== undefined) {
    query.set("since", String(seq));
    query.set("epoch", epoch);
  }
  const url = new URL(`${page.base}/ws?${query}`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  socket = new WebSocket(url);
  socket.onopen = () => {
    wait = 500;
    send("SUBSCRIBE", {});
    if (isLate) again.forEach((reload) => reload());
    isLate = false;
  };
  socket.onmessage = (event) => take(JSON.parse(String(event.data)) as Message);
  socket.onclose = () => {
    connection.value = "lost";
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 10_000);
  };
}

function take(message: Message): void {
  if (message.seq !== undefined) seq = message.seq;
  if (message.type === "SUBSCRIBED") {
    epoch = String(message.payload.epoch);
    seq ??= Number(message.payload.seq);
    connection.value = "open";
  } else if (message.type === "RELOAD_NEEDED" || message.type === "GAP") {
    if (message.type === "RELOAD_NEEDED") seq = 0; // the host was started again and counts anew
    again.forEach((reload) => reload());
  }
  const named = [...listeners].filter(([type]) => matches(type, message.type));
  for (const [, those] of named) those.forEach((listener) => listener(message));
}

function matches(type: string, name: string): boolean {
  return type.endsWith("*") ? name.startsWith(type.slice(0, -1)) : type === name;
}
