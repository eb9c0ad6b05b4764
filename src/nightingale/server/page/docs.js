// The schema as a page: every route, its fields and what they are.

const schema = await (await fetch("/openapi.json")).json();
const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};
const named = (node) => (node?.$ref ? schema.components.schemas[node.$ref.split("/").pop()] : node) ?? {};
const kind = (node) => node.type ?? (node.anyOf ?? []).map((one) => one.type ?? one.$ref?.split("/").pop()).join(" | ");

for (const [path, methods] of Object.entries(schema.paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const section = make("section", "", make("h3", "", make("code", `${method.toUpperCase()} ${path}`)), make("p", route.description ?? route.summary));
    const content = Object.values(route.requestBody?.content ?? {})[0];
    const fields = Object.entries(named(content?.schema).properties ?? {});
    const rows = [...fields.map(([name, field]) => [name, kind(field), field.default]), ...(route.parameters ?? []).map((one) => [one.name, kind(one.schema), one.schema.default])];
    if (rows.length) {
      section.append(make("table", "", ...rows.map(([name, type, standard]) => make("tr", "", make("td", "", make("code", name)), make("td", type), make("td", standard === undefined || standard === null ? "" : String(standard))))));
    }
    document.getElementById("routes").append(section);
  }
}
