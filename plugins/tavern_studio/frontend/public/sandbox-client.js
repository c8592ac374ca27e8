// Runs first in the frame of a sandboxed panel: gives the plugin's code an interface that is made of messages. Nothing
// here protects the page, which checks each message; the policy of the frame's document keeps the code in.

// The one way to the network that no policy of a document closes. The windows of frames in the frame are of other origins.
for (const name of Object.getOwnPropertyNames(self)) if (/^(webkit|moz)?RTC/.test(name)) delete self[name];

addEventListener("message", function begin(event) {
  const [port] = event.ports;
  if (event.source !== parent || !port) return;
  removeEventListener("message", begin);
  const { plugin, apiVersion, panel, locale, code, styles, look } = JSON.parse(event.data);
  const send = (message) => port.postMessage(JSON.stringify(message));
  const asked = new Map();
  const listeners = new Map();
  const commands = new Map();
  let last = 0;

  const ask = (method, ...values) =>
    new Promise((resolve, reject) => {
      asked.set(++last, { resolve, reject });
      send({ type: "ask", id: last, method, values });
    });

  const theme = document.head.appendChild(document.createElement("style"));
  theme.textContent = look;
  for (const style of styles) document.head.appendChild(document.createElement("style")).textContent = style;
  document.documentElement.lang = locale;
  document.title = panel;

  const api = {
    plugin: Object.freeze(plugin),
    apiVersion,
    panel,
    locale,
    root: document.body.appendChild(document.createElement("main")),
    t: (texts, values = {}) =>
      (texts[locale] ?? texts.en).replace(/\{(\w+)\}/g, (whole, key) => String(values[key] ?? whole)),
    getConfig: (option) => ask("getConfig", option),
    onConfigChange(option, listener) {
      const id = ++last;
      listeners.set(id, listener);
      ask("onConfigChange", option, id).catch((error) => console.error(error));
      return () => listeners.delete(id);
    },
    commands: {
      add({ id, run }) {
        commands.set(id, run);
        ask("addCommand", id).catch((error) => console.error(error));
        return () => commands.delete(id);
      },
    },
    request: (path, { method = "GET", body } = {}) => ask("request", path, method, body),
  };

  port.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "answer") {
      const waiting = asked.get(message.id);
      asked.delete(message.id);
      if ("error" in message) waiting?.reject(Object.assign(new Error(message.error), { name: message.name }));
      else waiting?.resolve(message.value);
    } else if (message.type === "config") listeners.get(message.id)?.(message.value);
    else if (message.type === "command") commands.get(message.id)?.();
    else if (message.type === "look") theme.textContent = message.look;
  };

  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  import(address)
    .then((module) => module.default(Object.freeze(api)))
    .then(() => send({ type: "ready" }))
    .catch((error) => send({ type: "failed", message: String(error?.message ?? error) }));
  addEventListener("error", ({ message }) => send({ type: "mistake", message: String(message) }));
  addEventListener("unhandledrejection", ({ reason }) =>
    send({ type: "mistake", message: String(reason?.message ?? reason) }),
  );
});
