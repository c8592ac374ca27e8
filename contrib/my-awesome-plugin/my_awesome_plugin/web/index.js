import { h } from "vue";

const NAMESPACE = "my-awesome-plugin:";

const isOwn = (attrs) => String(attrs.type ?? "").startsWith(NAMESPACE);

/** Outlet node:header:right: a star on the plugin's own nodes. */
export const OwnNodeBadge = {
  name: "OwnNodeBadge",
  inheritAttrs: false,
  setup(_props, { attrs }) {
    return () => (isOwn(attrs) ? h("span", { class: "my-awesome-badge", title: "My awesome plugin" }, "★") : null);
  },
};

/**
 * Wrap of ui:BaseNode: a frame around the plugin's own nodes. It declares no props, so that all of them
 * reach the original.
 */
export const frameOwnNodes = (original) => ({
  name: "FrameOwnNodes",
  inheritAttrs: false,
  setup(_props, { attrs, slots }) {
    return () => h(original, { ...attrs, class: [attrs.class, { "my-awesome-node": isOwn(attrs) }] }, slots);
  },
});
