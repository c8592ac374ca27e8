/** What the server wrote into the page: where it is reached, and which project the page is of. */
interface Page {
  /** The path that stands before all others, such as `/tavern`, or nothing. */
  base: string;
  project: { id: string; name: string };
}

export const page: Page = {
  base: document.documentElement.dataset.base ?? "",
  project: { id: document.documentElement.dataset.project ?? "", name: document.documentElement.dataset.name ?? "" },
};
