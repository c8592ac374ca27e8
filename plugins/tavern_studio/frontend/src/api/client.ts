import createClient, { createQuerySerializer } from "openapi-fetch";
import { page } from "./page";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** What the server says went wrong (RFC 9457), or that it does not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
    /** What was asked for, such as `POST /api/workflows`; nothing where the page itself refused. */
    readonly operation?: string,
    /** The plugin that it is of. */
    readonly plugin?: string,
  ) {
    super(message);
  }
}

/** Requests to the server of this page, for its project. Paths and models are those of its OpenAPI document. */
const serialize = createQuerySerializer<Record<string, unknown>>();

export const api = createClient<paths>({
  baseUrl: `${location.origin}${page.base}`,
  querySerializer: (query) => serialize({ projectId: page.project.id, ...query }),
});

const operations = new WeakMap<Response, string>();
const operationOf = (request: Request) => `${request.method} ${new URL(request.url).pathname}`;
const successes = new Set<(operation: string) => void>();

/** Hear of each request that was answered as was asked for. */
export function onSuccess(listener: (operation: string) => void): void {
  successes.add(listener);
}

api.use({
  onResponse({ request, response }) {
    operations.set(response, operationOf(request));
    if (response.ok) successes.forEach((listener) => listener(operationOf(request)));
    return undefined;
  },
});

// The language of the page, which need not be that of the browser: messages of the server are shown as they come.
api.use({ onRequest: ({ request }) => request.headers.set("Accept-Language", document.documentElement.lang) });

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return what a request answers with; throw an `ApiError` where it was refused or never came. */
export async function ask<T>(request: Promise<Answer<T>>): Promise<NonNullable<T>> {
  return (await askWhole(request)).data;
}

/** The same with the response, for its headers. */
export async function askWhole<T>(request: Promise<Answer<T>>): Promise<{ data: NonNullable<T>; response: Response }> {
  let answer: Answer<T>;
  try {
    answer = await request;
  } catch {
    throw new ApiError(0, "unreachable", "");
  }
  if (answer.error !== undefined || !answer.response.ok) throw problem(answer.response, answer.error);
  return { data: answer.data as NonNullable<T>, response: answer.response };
}

function problem(response: Response, body: unknown): ApiError {
  const said = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const text = said.detail ?? said.message ?? said.title ?? (typeof body === "string" ? body : "");
  const details = typeof said.details === "object" && said.details !== null ? said.details : {};
  const { status } = response;
  const plugin = typeof said.plugin === "string" ? said.plugin : undefined;
  const code = String(said.code ?? status);
  return new ApiError(status, code, String(text), details as Record<string, unknown>, operations.get(response), plugin);
}
