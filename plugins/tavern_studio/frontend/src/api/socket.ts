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

/** How the connection stands; `lost` until it is there again, `signedOut` until somebody has signed in, `silent` for who may
 * not hear. */
export const connection: Ref<"connecting" | "open" | "lost" | "signedOut" | "silent"> = ref("connecting");

/** Milliseconds until a lost connection is tried again, at first and at most: a server that was started again is to be found
 * within three seconds. */
const SOON = 500;
const LATE = 2000;

const listeners = new Map<string, Set<Listener>>();
const again = new Set<() => void>();
let socket: WebSocket | undefined;
let wait = SOON;
let seq: number | undefined;
let epoch = "";
/** Whether something was read before the socket was there: what happened since then is not heard. */
let isLate = false;

api.use({
  onResponse({ response, schemaPath }) {
    // A wrong password is answered so, too.
    if (response.status === 401 && schemaPath !== "/api/me") void hasSession();
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

/** Have all that is shown asked for once more: so much has changed that no message says it. */
export function askAgain(): void {
  again.forEach((reload) => reload());
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
  const mine = (socket = new WebSocket(url));
  socket.onopen = () => {
    wait = SOON;
    send("SUBSCRIBE", {});
    if (isLate) again.forEach((reload) => reload());
    isLate = false;
  };
  socket.onmessage = (event) => take(JSON.parse(String(event.data)) as Message);
  socket.onclose = () => {
    if (socket === mine && connection.value !== "signedOut") tryLater();
  };
}

/** Say whether the person at this page may hear what happens; who may not is not tried again for. */
export function setHearing(mayHear: boolean): void {
  const wasSilent = connection.value === "silent";
  if (!mayHear) connection.value = "silent";
  else if (wasSilent) {
    connection.value = "connecting";
    connect();
  }
}

function tryLater(): void {
  if (connection.value === "silent") return;
  connection.value = "lost";
  setTimeout(() => void reconnect(), wait);
  wait = Math.min(wait * 2, LATE);
}

async function reconnect(): Promise<void> {
  const answered = await hasSession(); // a socket that is refused does not say why
  if (connection.value === "silent") return;
  if (answered) connect();
  else if (answered === undefined) tryLater();
}

/** Return whether the server lets this page in, undefined where it does not answer; where it does not, the page says so. */
async function hasSession(): Promise<boolean | undefined> {
  const status = await api.GET("/api/me").then(
    ({ response }) => response.status,
    () => undefined, // it does not answer, which is what was asked
  );
  if (status === 401) {
    isLate = true; // what was asked for meanwhile was refused
    connection.value = "signedOut";
  }
  return status === undefined ? undefined : status !== 401;
}

/** Give the server a token for this browser; return whether it lets the page in. */
export async function signIn(token: string): Promise<boolean | undefined> {
  try {
    const query = new URLSearchParams({ token });
    await fetch(`${page.base}/?${query}`, { headers: { Accept: "text/html" }, redirect: "manual" });
  } catch {
    return undefined; // the server does not answer, which the caller says
  }
  return resume();
}

/** Connect again after somebody has signed in, be it here or elsewhere in this browser. */
async function resume(): Promise<boolean | undefined> {
  const answered = await hasSession();
  if (answered && connection.value === "signedOut") {
    connection.value = "connecting";
    socket?.close(); // one of before is not asked for any more
    connect();
  }
  return answered;
}

addEventListener("focus", () => {
  if (connection.value === "signedOut") void resume();
});

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
