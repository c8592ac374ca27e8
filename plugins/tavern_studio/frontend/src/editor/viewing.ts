import { kept } from "../kit/kept";

/** How somebody likes the editor to be; kept in this browser, the same for all workflows. */

/** Whether nodes show what they gave. */
export const previews = kept("tavern.editor.previews", true);
/** Whether the library stands open beside the canvas; else its categories are a strip of icons. */
export const libraryIsOpen = kept("tavern.editor.library", innerWidth >= 1440);
/** Whether the side at the right stands open. */
export const sideIsOpen = kept("tavern.editor.side", true);
/** Whether there is an overview of large workflows. */
export const overview = kept("tavern.editor.overview", true);
