import { t } from "../i18n";
import { apiOf } from "./api";
import { ownerOf, type Extension } from "./extension";
import type { ExtensionApi } from "./types";

/** The interface that the ComfyTavern documents print: the one that every plugin has, and the older names. */
export interface WindowApi extends ExtensionApi {
  registerNodeUI: ExtensionApi["nodes"]["registerUI"];
}

declare global {
  interface Window {
    ComfyTavern?: { readonly extensionApi: WindowApi };
  }
}

/** Give each of these the API of its own at `window.ComfyTavern.extensionApi`. Whose call it is, its stack says. */
export function offerAtWindow(extensions: () => Iterable<Extension>): void {
  const made = new WeakMap<Extension, WindowApi>();
  const extensionApi = {
    get(): WindowApi {
      const caller = ownerOf(extensions(), new Error());
      if (caller === undefined) return NOBODYS;
      const api = made.get(caller) ?? windowApiOf(caller);
      made.set(caller, api);
      return api;
    },
    enumerable: true,
  };
  Object.defineProperty(window, "ComfyTavern", {
    value: Object.freeze(Object.defineProperties({}, { extensionApi })),
    enumerable: true,
  });
}

function windowApiOf(extension: Extension): WindowApi {
  const api = apiOf(extension);
  const registerNodeUI: WindowApi["registerNodeUI"] = (type, component) => {
    extension.deprecate("registerNodeUI", "nodes.registerUI");
    return api.nodes.registerUI(type, component);
  };
  return Object.freeze(Object.defineProperties({ registerNodeUI }, Object.getOwnPropertyDescriptors(api))) as WindowApi;
}

/** What is given to a call that no plugin can be named for: each of its methods refuses. */
const NOBODYS = refusing("extensionApi") as WindowApi;

function refusing(path: string): object {
  return new Proxy(() => undefined, {
    get: (_target, key) => (typeof key === "symbol" ? undefined : refusing(`${path}.${key}`)),
    apply() {
      throw new Error(t("extensions.unattributed", { what: path }));
    },
    set: () => false,
  });
}
