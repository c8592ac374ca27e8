import type { Component } from "vue";
import { blobOf } from "../kit/values/seen";
import { layered } from "./components";
import { layersOf } from "./layers";

/** The name of what is laid over the page's own way to show a kind of value. */
export const rendererTarget = (kind: string) => `value:${kind}`;

/** The name of what is laid over the icon of a node type. */
export const iconTarget = (type: string) => `icon:${type}`;

/**
 * What a value is shown with, on the canvas, in the inspector, in runs and in the chat: what a plugin has registered for the
 * media type of a Blob (`image/tiff`, `image/*`) or a category of the slot (`matchCategories`); else, and once that has made
 * a mistake, `plain`.
 */
export function rendererOf(value: unknown, categories: readonly string[], plain: Component): Component {
  const mediaType = blobOf(value)?.mediaType;
  const kinds = mediaType ? [mediaType, mediaType.replace(/\/.*/, "/*"), ...categories] : categories;
  for (const target of kinds.map(rendererTarget)) {
    const layer = layersOf(target).override;
    if (layer) return layered(target, layer, plain, plain);
  }
  return plain;
}
