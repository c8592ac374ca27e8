import vue from "@vitejs/plugin-vue";
import { defineConfig } from "vitest/config";

// The page is written by the server, which names `studio.js` and `studio.css`; everything else is found from there.
export default defineConfig({
  plugins: [vue()],
  base: "./",
  define: { __VUE_OPTIONS_API__: "false", __VUE_I18N_LEGACY_API__: "false", __INTLIFY_PROD_DEVTOOLS__: "false" },
  build: {
    outDir: "../web",
    emptyOutDir: true,
    cssCodeSplit: true,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      input: { studio: "src/main.ts" },
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "parts/[name]-[hash].js",
        assetFileNames: (asset) => (asset.names.includes("studio.css") ? "studio.css" : "parts/[name]-[hash][extname]"),
      },
    },
  },
  test: { environment: "happy-dom", include: ["tests/**/*.test.ts"] },
});
