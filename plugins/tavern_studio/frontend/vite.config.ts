import vue from "@vitejs/plugin-vue";
import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { manual } from "./manual.ts";

/** The module `virtual:access`: which access each operation of the server needs, by its OpenAPI document. */
function access() {
  const name = "virtual:access";
  return {
    name,
    resolveId: (id: string) => (id === name ? `\0${name}` : undefined),
    load(id: string) {
      if (id !== `\0${name}`) return undefined;
      const { paths } = JSON.parse(readFileSync(new URL("openapi.json", import.meta.url), "utf8")) as {
        paths: Record<string, Record<string, { "x-access": string }>>;
      };
      const rows = Object.entries(paths).flatMap(([path, methods]) =>
        Object.entries(methods).map(([method, { "x-access": needed }]) => [`${method.toUpperCase()} ${path}`, needed]),
      );
      return `export default ${JSON.stringify(Object.fromEntries(rows.filter(([, needed]) => needed !== "read")))}`;
    },
  };
}

/** The module `virtual:manual`: the documentation, as `manual.ts` gathers it. */
function documentation() {
  const name = "virtual:manual";
  return {
    name,
    resolveId: (id: string) => (id === name ? `\0${name}` : undefined),
    load: (id: string) => (id === `\0${name}` ? manual() : undefined),
  };
}

// The page is written by the server, which names `studio.js`, `studio.css`, and in its import map `vue.js`; everything else
// is found from there. Plugins get the whole of Vue, with the Options API.
export default defineConfig({
  plugins: [vue(), access(), documentation()],
  base: "./",
  define: { __VUE_OPTIONS_API__: "true", __VUE_I18N_LEGACY_API__: "false", __INTLIFY_PROD_DEVTOOLS__: "false" },
  build: {
    outDir: "../web",
    emptyOutDir: true,
    cssCodeSplit: true,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      input: { studio: "src/main.ts", vue: "src/extensions/vue.ts" },
      preserveEntrySignatures: "exports-only",
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "parts/[name]-[hash].js",
        assetFileNames: (asset) => (asset.names.includes("studio.css") ? "studio.css" : "parts/[name]-[hash][extname]"),
      },
    },
  },
  server: { fs: { allow: [".", "../../../docs/pictures"] } },
  // One environment for all files, which leave nothing behind in it: a new one for each would take most of the time.
  test: { environment: "happy-dom", isolate: false, include: ["tests/**/*.test.ts"] },
});
