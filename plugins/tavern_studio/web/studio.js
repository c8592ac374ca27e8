// Shows the host's events as they come, and asks for what was missed after a lost connection.

const SHOWN = 200;
const list = document.getElementById("events");
const connection = document.getElementById("connection");
let lastSeq = null;
let epoch = "";
let wait = 500;

function show(message) {
  const item = document.createElement("li");
  const type = document.createElement("code");
  type.textContent = message.type;
  item.append(type, ` ${JSON.stringify(message.payload)}`);
  list.prepend(item);
  while (list.children.length > SHOWN) list.lastChild.remove();
}

function connect() {
  const since = lastSeq === null ? "" : `?since=${lastSeq}&epoch=${epoch}`;
  const socket = new WebSocket(new URL(`../../ws${since}`, import.meta.url.replace(/^http/, "ws")));
  socket.onopen = () => {
    socket.send(JSON.stringify({ type: "SUBSCRIBE" })); // everything; the answer says the epoch
    connection.textContent = "connected";
    wait = 500;
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.seq !== undefined) lastSeq = message.seq;
    if (message.type === "RELOAD_NEEDED") lastSeq = 0; // the host was started again and counts anew
    if (message.type === "SUBSCRIBED") {
      ({ epoch } = message.payload);
      lastSeq ??= message.payload.seq;
      return;
    }
    show(message);
  };
  socket.onclose = () => {
    connection.textContent = "the host does not answer; trying again … (after a restart, open the address that it printed)";
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 10_000);
  };
}

connect();
