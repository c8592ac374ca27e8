// `web/vue.js`: the one copy of Vue, which the import map of the page gives to plugins and the studio's own bundle uses.
export * from "vue";
