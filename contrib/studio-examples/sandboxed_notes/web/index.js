/** @import { SandboxApi } from "@tavern-host/extension" */

/**
 * Runs in a frame of its own: `document` is that frame's, and what the page is asked is answered by a promise.
 * @param {SandboxApi} api
 */
export default async function setup(api) {
  const field = document.createElement("textarea");
  field.setAttribute("aria-label", "Notes");
  field.placeholder = await api.getConfig("hint");
  api.onConfigChange("hint", (/** @type {string} */ value) => (field.placeholder = value));
  api.root.append(field);
}
