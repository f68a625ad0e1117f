// The page: a bar, the servers beside it, and the view that the address names.

import { listen } from "./api.js";
import { beginDrawing, closeHidden } from "./apps/view.js";
import { compareView } from "./compare-view.js";
import { visible } from "./format.js";
import { historyView } from "./history-view.js";
import { itemView } from "./item-view.js";
import { html, nothing, render } from "./lit.js";
import { drawQuestions, questionBadge, setQuestionsAside } from "./question-view.js";
import { currentRoute, hrefTo } from "./route.js";
import { editServerView, newServerView } from "./server-form.js";
import { serverView } from "./server-view.js";
import { sidebar } from "./sidebar.js";
import { startView } from "./start-view.js";
import { changed, drawWith, receive, state } from "./store.js";
import { themeSwitch } from "./theme.js";
import { trafficView } from "./traffic-view.js";

const views = {
  start: startView,
  item: itemView,
  server: serverView,
  "new-server": newServerView,
  "edit-server": editServerView,
  history: historyView,
  compare: compareView,
  traffic: trafficView,
};

function page() {
  const route = currentRoute();
  return html`
    ${bar(route)}
    <div class="body ${route.view === "start" ? "at-start" : ""}">
      ${sidebar(route)}
      <main id="main">
        ${state.connected ? nothing : html`<p class="warning" role="status">Connecting to the inspector…</p>`}
        ${state.problem ? html`<p class="error" role="alert">${visible(state.problem)}</p>` : nothing}
        ${views[route.view](route)}
      </main>
    </div>
    <dialog id="questions" aria-labelledby="question-heading" @cancel=${setQuestionsAside}></dialog>
  `;
}

function bar(route) {
  const tab = (view, label, count) => html`<a href=${view === "start" ? "#/" : hrefTo(view)} aria-current=${isIn(view, route) ? "page" : nothing}>
    ${label}${count ? html` <span class="count">${count}</span>` : nothing}
  </a>`;
  return html`<header class="top">
    <h1>bridge <span>inspect</span></h1>
    <nav aria-label="Views">
      ${tab("start", "Explore", 0)} ${tab("history", "History", state.requests.length)}
      ${tab("traffic", "Traffic", state.messages.length)}
    </nav>
    <div class="tools">${questionBadge()} ${themeSwitch()}</div>
  </header>`;
}

function isIn(view, route) {
  if (view === "history" && route.view === "compare") return true;
  return view === "start" ? ["start", "item", "server", "new-server", "edit-server"].includes(route.view) : route.view === view;
}

function onKey(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("search").select();
  }
}

let closing = null;

/** Draw the page; apps that it no longer shows are closed before. */
function draw() {
  if (closing) return;
  beginDrawing();
  const next = page();
  closing = closeHidden();
  if (!closing) {
    render(next, document.getElementById("page"));
    drawQuestions(document.getElementById("questions"));
    document.title = `${state.questions.length ? `(${state.questions.length}) ` : ""}bridge inspect`;
    return;
  }
  closing.finally(() => {
    closing = null;
    changed();
  });
}

drawWith(draw);
addEventListener("hashchange", changed);
addEventListener("keydown", onKey);
listen({
  onEvent: receive,
  onFailure(kind, error) {
    state.problem = `An event (${kind}) of the inspector cannot be shown: ${error.message}`;
    changed();
  },
  onConnected(isConnected) {
    state.connected = isConnected;
    changed();
  },
});
changed();
