import vue from "@vitejs/plugin-vue";
import { defineConfig } from "vite";

// Vue is the page's own: components of a second copy could not be put beside those of the page.
export default defineConfig({
  plugins: [vue()],
  build: {
    outDir: "../web",
    emptyOutDir: true,
    lib: { entry: "index.ts", formats: ["es"], fileName: "index", cssFileName: "style" },
    rollupOptions: { external: ["vue"] },
  },
});
