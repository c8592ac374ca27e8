// Starts Vite's development server for the front end of a plugin that is being written, with the Vite that the plugin has
// installed. Writes one line, {"address": …} or {"problem": …}, and ends when its standard input does.
import { existsSync, realpathSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { pathToFileURL } from "node:url";

const [plugin, given, vue, origin] = process.argv.slice(2);
const entry = realpathSync(given);
const VITE = join("node_modules", "vite", "dist", "node", "index.js");

// Components are compiled as for use: what replaces single ones in place needs a Vue that was built for development.
process.env.NODE_ENV = "production";
process.stdin.on("end", () => process.exit()).resume();
const tell = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);

function home(folder) {
  if (existsSync(join(folder, VITE))) return folder;
  return dirname(folder) === folder ? undefined : home(dirname(folder));
}

const REPLACE = `
if (import.meta.hot) import.meta.hot.accept((module) => {
  if (module) dispatchEvent(new CustomEvent("tavern:replace", { detail: { plugin: ${JSON.stringify(plugin)}, module } }));
});
`;

const root = home(dirname(entry));
if (root === undefined) {
  tell({ problem: "Vite is not installed: run `npm install` beside its package.json" });
  process.exit(1);
}
try {
  const { createServer } = await import(pathToFileURL(join(root, VITE)).href);
  const server = await createServer({
    root,
    appType: "custom",
    clearScreen: false,
    logLevel: "silent",
    server: { host: "127.0.0.1", port: 0, cors: { origin }, hmr: { overlay: false } },
    optimizeDeps: { exclude: ["vue"] },
    plugins: [
      {
        name: "tavern-host",
        enforce: "pre",
        // The page's own Vue, by the address that its import map has.
        resolveId: (id) => (id === "vue" ? { id: vue, external: true } : undefined),
        transform: (code, id) => (id.split("?")[0] === entry ? { code: code + REPLACE, map: null } : undefined),
      },
    ],
  });
  await server.listen();
  const { port } = server.httpServer.address();
  tell({ address: `http://127.0.0.1:${port}/${relative(root, entry).split(sep).join(posix.sep)}` });
} catch (error) {
  tell({ problem: String(error?.message ?? error) });
  process.exit(1);
}
