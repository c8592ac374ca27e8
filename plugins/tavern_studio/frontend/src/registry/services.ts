import { api, ask } from "../api/client";
import { listen } from "../api/socket";
import type { ClientServices, WorkflowManager } from "../extensions/types";
import { current } from "./current";
import { layersOf } from "./layers";

const copy = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

const workflowManager: WorkflowManager = {
  current: () =>
    current.value && { id: current.value.id, document: copy(current.value.document.value) as Record<string, unknown> },
  list: async () => (await ask(api.GET("/api/workflows"))).map(({ id, name }) => ({ id, name: name ?? id })),
  get: async (workflowId) => ({
    ...(await ask(api.GET("/api/workflows/{workflowId}", { params: { path: { workflowId } } }))),
  }),
  execute: async (prompt) => ({ promptId: (await ask(api.POST("/api/prompt", { body: prompt as never }))).promptId }),
  interrupt: async (promptId) =>
    void (await ask(api.DELETE("/api/interrupt/{promptId}", { params: { path: { promptId } } }))),
};

export const services: ClientServices = {
  workflowManager,
  events: { on: (types, listener) => listen(types, (message) => listener(copy(message))) },
};

/** What plugins may call of each service: what acts stays with the studio, and with who overrides it. */
const READS: { [Name in keyof ClientServices]: readonly string[] } = {
  workflowManager: ["current", "list", "get"],
  events: ["on"],
};

/** Return a service as the studio uses it: a plugin's where one was given in its place, whose mistakes are then its. */
export function service<Name extends keyof ClientServices>(name: Name): ClientServices[Name] {
  const layer = layersOf(`service:${name}`).override;
  if (layer === undefined) return services[name];
  const replacement = layer.value as Record<string, unknown>;
  return new Proxy(services[name], {
    get(target, key) {
      const own = typeof key === "string" ? replacement[key] : undefined;
      if (typeof own !== "function") return Reflect.get(target, key) as unknown;
      const fail = (error: unknown): never => {
        layer.owner.fail(`service ${name}.${String(key)}`, error);
        throw error;
      };
      return (...values: unknown[]): unknown => {
        try {
          const result: unknown = own.apply(replacement, values);
          return result instanceof Promise ? result.catch(fail) : result;
        } catch (error) {
          return fail(error);
        }
      };
    },
  });
}

/** Return a view of a service that only reads: it shows nothing else, and cannot be changed. `call` makes its calls. */
export function readOnly<Name extends keyof ClientServices>(
  name: Name,
  call: (method: string, values: unknown[]) => unknown,
): object {
  const refuse = () => {
    throw new TypeError(`services.get("${name}") is read-only`);
  };
  const methods = Object.fromEntries(
    READS[name].map((method) => [method, (...values: unknown[]) => call(method, values)]),
  );
  return new Proxy(Object.freeze(methods), {
    set: refuse,
    defineProperty: refuse,
    deleteProperty: refuse,
    setPrototypeOf: refuse,
  });
}

/** Call a method of a service as the studio does. */
export function callService(name: keyof ClientServices, method: string, values: unknown[]): unknown {
  return (service(name) as unknown as Record<string, (...all: unknown[]) => unknown>)[method]?.(...values);
}
