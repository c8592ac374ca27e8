/**
 * Runs in a frame of its own: `document` is that frame's, and what `api` gives goes through messages, so that
 * its answers are promises.
 * @param {any} api
 */
export default async function setup(api) {
  const field = document.createElement("textarea");
  field.setAttribute("aria-label", "Notes");
  field.placeholder = await api.getConfig("hint");
  api.onConfigChange("hint", (/** @type {string} */ value) => (field.placeholder = value));
  document.body.append(field);
}
