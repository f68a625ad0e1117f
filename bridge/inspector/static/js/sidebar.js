// Servers and what they offer, with search.

import { titleOf, visible } from "./format.js";
import { html, live, nothing, repeat } from "./lit.js";
import { hrefTo } from "./route.js";
import { changed, state } from "./store.js";

/** Kinds of items: name of the kind, key of the list, heading, key of the name. */
export const KINDS = [
  ["tool", "tools", "Tools", "name"],
  ["resource", "resources", "Resources", "uri"],
  ["template", "templates", "Resource templates", "uriTemplate"],
  ["prompt", "prompts", "Prompts", "name"],
  ["skill", "skills", "Skills", "uri"],
  ["event", "events", "Events", "name"],
];

export function sidebar(route) {
  const search = ({ target }) => {
    state.search = target.value;
    changed();
  };
  return html`<nav class="sidebar" aria-label="Servers" @keydown=${moveFocus}>
    <input
      type="search" id="search" placeholder="Search  /" aria-label="Search tools, resources, prompts, skills and events"
      .value=${live(state.search)} @input=${search} @keydown=${openMatch}
    >
    ${repeat(state.servers, ({ name }) => name, (server) => serverList(server, route))}
  </nav>`;
}

function serverList(server, route) {
  const isCurrent = route.view === "server" && route.server === server.name;
  return html`<section class="server">
    <a class="server-name" href=${hrefTo("server", server.name)} aria-current=${isCurrent ? "page" : nothing}>
      ${stateDot(server)}<span>${visible(server.name)}</span>
    </a>
    ${KINDS.map(([kind, list, heading, key]) => itemList(server, route, kind, server[list], heading, key))}
    ${server.state === "ready" ? listing(server) : html`<p class="muted">${stateText(server.state)}</p>`}
  </section>`;
}

/** What is missing in the lists of a server. */
function listing({ awaited, problems }) {
  if (awaited) return html`<p class="muted">waiting for ${awaited}…</p>`;
  return problems.length ? html`<p class="muted">problems: ${problems.length}</p>` : nothing;
}

function itemList(server, route, kind, items, heading, key) {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = items.filter((item) => {
    const text = [item[key], item.name, item.title, item.description].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (!found.length) return nothing;
  return html`<h2>${heading} <span class="count">${found.length}</span></h2>
    <ul>
      ${repeat(
        found,
        (item) => item[key],
        (item) => {
          const isCurrent =
            route.view === "item" && route.kind === kind && route.server === server.name && route.name === item[key];
          return html`<li>
            <a class="item-link" href=${hrefTo(kind, server.name, item[key])} aria-current=${isCurrent ? "page" : nothing}
              title=${visible(item.description ?? "")}
            >${visible(item.name || item[key])}${titleBeside(item)}</a>
          </li>`;
        },
      )}
    </ul>`;
}

/** The title of an item, if it says more than the name. */
function titleBeside(item) {
  const title = titleOf(item);
  return title === (item.name || title) ? nothing : html` <span class="title">${visible(title)}</span>`;
}

const STATES = {
  closed: "not connected",
  connecting: "connecting…",
  ready: "ready",
  degraded: "connection lost; reconnecting…",
  needs_auth: "needs credentials",
  failed: "failed",
  disabled: "disabled",
};

export const stateText = (name) => STATES[name] ?? name;

export function stateDot(server) {
  const text = stateText(server.state);
  return html`<span class="dot ${server.state}" role="img" aria-label=${text} title=${text}></span>`;
}

/** Open the first match on Enter. */
function openMatch(event) {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  event.target.closest("nav").querySelector(".item-link")?.click();
}

/** Move the focus between links with the arrow keys. */
function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const index = links.indexOf(document.activeElement);
  const next = links[index < 0 ? 0 : index + step];
  if (next) {
    event.preventDefault();
    next.focus();
  }
}
