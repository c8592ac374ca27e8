// Shows what /api/openapi.json describes, and sends requests with the values that are filled in.

const state = document.getElementById("state");
const search = document.getElementById("search");
const routes = document.getElementById("route-list");
// Below a base path, too; the page of a project has its files from there.
const PROJECT = import.meta.url.match(/\/projects\/([^/]+)\/plugins\//)?.[1];
const BASE = new URL(PROJECT ? "../../../../" : "../../", import.meta.url);
let schemas = {};

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function resolved(schema) {
  return schema?.$ref ? (schemas[schema.$ref.split("/").at(-1)] ?? {}) : (schema ?? {});
}

// An example of what a schema describes: what must be there, with empty values.
function example(schema, depth = 0) {
  const found = resolved(schema);
  if (found.const !== undefined) return found.const;
  if (found.default !== undefined && found.default !== null) return found.default;
  if (found.enum) return found.enum[0];
  const choice = found.anyOf ?? found.oneOf;
  if (choice) return example(choice[0], depth);
  if (found.type === "array") return [];
  if (found.type === "object" || found.properties) {
    const needed = depth < 4 ? (found.required ?? []) : [];
    return Object.fromEntries(needed.map((key) => [key, example(found.properties?.[key], depth + 1)]));
  }
  return { string: "", integer: 0, number: 0, boolean: false }[found.type] ?? null;
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  const choice = schema.anyOf ?? schema.oneOf;
  return choice ? choice.map(kind).join(" or ") : (schema.type ?? "any");
}

async function send(method, path, fields, body, output) {
  let address = path;
  const query = new URLSearchParams();
  for (const { name, in: place, input } of fields) {
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(name, input.value);
  }
  if (PROJECT && !query.has("projectId") && !address.startsWith("/api/projects")) query.set("projectId", PROJECT);
  if (query.size) address += `?${query}`;
  const headers = body ? { "Content-Type": "application/json" } : {};
  output.textContent = "…";
  try {
    const answer = await fetch(new URL(address.slice(1), BASE), { method, headers, body: body?.value || undefined });
    const text = await answer.text();
    let shown = text;
    try {
      shown = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // it is no JSON
    }
    output.textContent = `${method} ${address}\n${answer.status} ${answer.statusText}\n\n${shown.slice(0, 100_000)}`;
  } catch (error) {
    output.textContent = `the host does not answer: ${error.message}`;
  }
}

function form(method, path, operation) {
  const fields = (operation.parameters ?? []).map((parameter) => {
    const input = element("input", { required: parameter.required, autocomplete: "off", spellcheck: false });
    return { ...parameter, input };
  });
  const described = operation.requestBody?.content["application/json"]?.schema;
  const body = described && element("textarea", { rows: 8, spellcheck: false, ariaLabel: "Body (JSON)" });
  if (body) body.value = JSON.stringify(example(described), null, 2);
  const output = element("pre", { className: "answer", tabIndex: 0 });
  const made = element("form", {
    onsubmit: (event) => {
      event.preventDefault();
      send(method, path, fields, body, output);
    },
  });
  for (const field of fields) {
    const label = `${field.name}${field.required ? "" : " (may be left out)"} · ${kind(field.schema)}`;
    made.append(element("label", {}, label, field.input));
  }
  if (body) made.append(element("label", {}, `Body · ${kind(described)}`, body));
  const [status, done] = Object.entries(operation.responses)[0];
  const answers = Object.entries(done.content ?? {}).map(([type, one]) => kind(one.schema) || type);
  made.append(
    element(
      "p",
      {},
      `Answers ${status}${answers.length ? `: ${answers.join(", ")}` : ""}. Needs: ${operation["x-access"]}.`,
    ),
  );
  if (path !== "/ws") made.append(element("button", {}, "Send"), output);
  return made;
}

function row(method, path, operation) {
  const summary = element(
    "summary",
    {},
    element("code", { className: "method" }, method),
    " ",
    element("code", {}, path),
    ` ${operation.summary}`,
  );
  const made = element("details", { className: "route" }, summary);
  made.dataset.text = `${method} ${path} ${operation.summary} ${operation.tags[0]}`.toLowerCase();
  made.addEventListener(
    "toggle",
    () => made.open && made.childElementCount === 1 && made.append(form(method, path, operation)),
  );
  return made;
}

function show(document_) {
  schemas = document_.components.schemas;
  const groups = new Map();
  for (const [path, item] of Object.entries(document_.paths))
    for (const [method, operation] of Object.entries(item)) {
      const tag = operation.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(row(method.toUpperCase(), path, operation));
    }
  for (const [tag, rows] of groups) routes.append(element("section", {}, element("h3", {}, tag), ...rows));
  state.textContent = `${routes.querySelectorAll(".route").length} routes; the same as a document: `;
  state.append(element("a", { href: "/api/openapi.json" }, "/api/openapi.json"));
  search.hidden = false;
}

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of routes.children) {
    for (const one of section.querySelectorAll(".route"))
      one.hidden = !words.every((word) => one.dataset.text.includes(word));
    section.hidden = !section.querySelector(".route:not([hidden])");
  }
});

fetch(new URL(`api/openapi.json${PROJECT ? `?projectId=${PROJECT}` : ""}`, BASE))
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`${answer.status} ${answer.statusText}`))))
  .then(show)
  .catch((error) => {
    state.textContent = `the routes cannot be read: ${error.message}`;
  });
