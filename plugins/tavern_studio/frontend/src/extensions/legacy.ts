import { t } from "../i18n";
import type { Extension } from "./extension";
import type { ExtensionApi } from "./types";

/** The interface of `frontend.api: legacy`: the one that every plugin has, and the older names. */
export interface LegacyApi extends ExtensionApi {
  registerNodeUI: ExtensionApi["nodes"]["registerUI"];
}

declare global {
  interface Window {
    ComfyTavern?: { readonly extensionApi: LegacyApi };
  }
}

let now: { extension: Extension; api: LegacyApi } | undefined;

/** Do something during which `window.ComfyTavern.extensionApi` is this plugin's, for its own code alone. */
export async function asLegacy<T>(extension: Extension, api: ExtensionApi, what: () => Promise<T>): Promise<T> {
  offer();
  const registerNodeUI: LegacyApi["registerNodeUI"] = (type, component) => {
    extension.deprecate("registerNodeUI", "nodes.registerUI");
    return api.nodes.registerUI(type, component);
  };
  const mine = {
    extension,
    api: Object.freeze(Object.defineProperties({ registerNodeUI }, Object.getOwnPropertyDescriptors(api))) as LegacyApi,
  };
  now = mine;
  try {
    return await what();
  } finally {
    if (now === mine) now = undefined;
  }
}

/** Whose call it is, only its stack says: a timer of another plugin may go off while this one is loaded. */
function offer(): void {
  if (window.ComfyTavern) return;
  const extensionApi = {
    get: (): LegacyApi => (now?.extension.owns(new Error()) ? now.api : NOBODYS),
    enumerable: true,
  };
  Object.defineProperty(window, "ComfyTavern", {
    value: Object.freeze(Object.defineProperties({}, { extensionApi })),
    enumerable: true,
  });
}

/** What is given to a call that no plugin can be named for: each of its methods refuses. */
const NOBODYS = refusing("extensionApi") as LegacyApi;

function refusing(path: string): object {
  return new Proxy(() => undefined, {
    get: (_target, key) => (typeof key === "symbol" ? undefined : refusing(`${path}.${key}`)),
    apply() {
      throw new Error(t("extensions.unattributed", { what: path }));
    },
    set: () => false,
  });
}
