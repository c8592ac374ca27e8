// What is checked of the code beside its types, which are vue-tsc's, and its layout, which is prettier's.
import js from "@eslint/js";
import vue from "eslint-plugin-vue";
import { defineConfig, globalIgnores } from "eslint/config";
import typescript from "typescript-eslint";

/** What the scripts in `public/`, whose types nobody checks, use of the browser. */
const BROWSER =
  "addEventListener Blob console document fetch parent removeEventListener self URL URLSearchParams".split(" ");

export default defineConfig(
  globalIgnores([
    "src/api/schema.d.ts", // generated
    "tests/declarations/", // as they were released
  ]),
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  typescript.configs.recommended,
  vue.configs["flat/strongly-recommended"],
  vue.configs["no-layout-rules"],
  {
    rules: {
      // `const { id: _, ...rest }` leaves a property out.
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
      // A property of that name is no place of a slot, as it was in Vue 2.
      "vue/no-deprecated-slot-attribute": ["error", { ignore: ["SlotHandle"] }],
      // What is given to be changed, such as the session of an editor, is changed; which one it is, is not.
      "vue/no-mutating-props": ["error", { shallowOnly: true }],
      "vue/no-v-html": "error",
    },
  },
  {
    // Rules that ask for types. In .vue files, each of which would have its types found out anew, they take twenty
    // seconds more.
    files: ["**/*.ts"],
    extends: [typescript.configs.recommendedTypeCheckedOnly],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      // What the server and plugins give is `unknown`; a text is made of it, whatever it is.
      "@typescript-eslint/no-base-to-string": "off",
      // What comes from a .vue file has no type here. vue-tsc knows it, and refuses an `any` that nobody wrote.
      "@typescript-eslint/no-unsafe-argument": "off",
      "@typescript-eslint/no-unsafe-assignment": "off",
      "@typescript-eslint/no-unsafe-call": "off",
      "@typescript-eslint/no-unsafe-member-access": "off",
      "@typescript-eslint/no-unsafe-return": "off",
    },
  },
  {
    files: ["**/*.vue"],
    languageOptions: { parserOptions: { parser: typescript.parser } },
    // vue-tsc refuses names that are not there.
    rules: { "no-undef": "off" },
  },
  {
    files: ["tests/**"],
    rules: {
      // A hook that waits for nothing stands for one of a plugin that does.
      "@typescript-eslint/require-await": "off",
      // Components are made where they are tried.
      "vue/one-component-per-file": "off",
    },
  },
  {
    files: ["public/**"],
    languageOptions: { globals: Object.fromEntries(BROWSER.map((name) => [name, "readonly"])) },
  },
);
