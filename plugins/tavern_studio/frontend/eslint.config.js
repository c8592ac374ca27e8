// What is checked of the code beside its types, which are vue-tsc's, and its layout, which is prettier's.
import js from "@eslint/js";
import vue from "eslint-plugin-vue";
import { defineConfig, globalIgnores } from "eslint/config";
import typescript from "typescript-eslint";

/** What the scripts in `public/`, whose types nobody checks, use of the browser. */
const BROWSER =
  "addEventListener Blob console document fetch parent removeEventListener self URL URLSearchParams".split(" ");

/** A handler that does not look at the failure which it takes has its reason beside it: otherwise the failure is to be shown. */
const reasoned = {
  create({ report, sourceCode }) {
    const isSilent = (handler) => /Function/.test(handler?.type ?? "") && handler.params.length === 0;
    return {
      CallExpression({ callee, arguments: given }) {
        const handler = { catch: given[0], then: given[1] }[callee.property?.name];
        if (!isSilent(handler)) return;
        const [from, to] = [handler.loc.start.line - 1, handler.loc.end.line];
        const isBeside = ({ loc }) => loc.end.line >= from && loc.start.line <= to;
        if (!sourceCode.getAllComments().some(isBeside))
          report({ node: handler, message: "Say beside this why nobody is told of the failure, or show it." });
      },
    };
  },
};

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
    plugins: { studio: { rules: { reasoned } } },
    rules: {
      "studio/reasoned": "error",
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
