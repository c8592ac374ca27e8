/** A search for the plugin that makes trouble, by halves: those that may be it, and those of them that are on now. */
export interface Search {
  suspects: string[];
  on: string[];
}

/** Begin with half of the plugins on; undefined where there is none to look for. */
export function begin(plugins: readonly string[]): Search | undefined {
  return plugins.length === 0 ? undefined : halved([...plugins].sort());
}

/** Go on with what was seen with the plugins that are on; the culprit is found where one suspect is left. */
export function next(search: Search, isThere: boolean): Search {
  return halved(isThere ? search.on : search.suspects.filter((one) => !search.on.includes(one)));
}

/** Return the plugin that it is, or undefined while there are several; null where it is none of them. */
export function culprit({ suspects }: Search): string | null | undefined {
  return suspects.length === 0 ? null : suspects.length === 1 ? suspects[0] : undefined;
}

function halved(suspects: string[]): Search {
  return { suspects, on: suspects.slice(0, Math.ceil(suspects.length / 2)) };
}
