// Addresses within the page: #/tool/SERVER/NAME, #/history/NUMBER, #/traffic.

const ITEMS = ["tool", "resource", "template", "prompt", "skill", "event"];

/** Address of a view. */
export function hrefTo(view, ...parts) {
  return `#/${[view, ...parts].map((part) => encodeURIComponent(part)).join("/")}`;
}

/** View that the address names, with its parts. */
export function currentRoute() {
  const [view, ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (ITEMS.includes(view) && parts.length === 2) return { view: "item", kind: view, server: parts[0], name: parts[1] };
  if (view === "new-server") return { view };
  if (["server", "edit-server"].includes(view) && parts.length === 1) return { view, server: parts[0] };
  if (view === "compare" && parts.length === 2) return { view, first: Number(parts[0]), second: Number(parts[1]) };
  if (view === "history") return { view, number: parts.length ? Number(parts[0]) : null };
  return { view: view === "traffic" ? view : "start" };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
