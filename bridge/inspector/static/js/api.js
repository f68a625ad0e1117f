// HTTP interface of the inspector, relative to the random path of the page.

import { compact, parse } from "./json.js";

export class ApiError extends Error {}

async function answered(response) {
  const text = await response.text();
  if (!response.ok) throw new ApiError(text.trim() || `HTTP ${response.status}`);
  return text;
}

async function get(path) {
  return answered(await fetch(path));
}

async function post(path, body = {}) {
  const headers = { "content-type": "application/json" };
  return parse(await answered(await fetch(path, { method: "POST", headers, body: compact(body) })));
}

export const api = {
  send: (server, method, params) => post("requests", { server, method, params }),
  request: async (number) => parse(await get(`requests/${number}`)),
  app: async (number) => parse(await get(`requests/${number}/app`)),
  cancel: (number) => post(`requests/${number}/cancel`),
  snippets: async (number) => parse(await get(`requests/${number}/snippets`)),
  clearRequests: () => post("requests/clear"),
  answer: (number, answer) => post(`questions/${number}`, { answer }),
  proposal: (number) => post(`questions/${number}/proposal`),
  message: (number) => get(`messages/${number}`),
  clearMessages: () => post("messages/clear"),
  check: (server, tool, args) => post("check", { server, tool, arguments: args }),
  checkAnswer: (question, args) => post("check", { question, arguments: args }),
  complete: async (server, params) => (await post("complete", { server, params })).values,
  entries: async () => parse(await get("servers")),
  putServer: (name, entry, isSaved) => post("servers", { name, entry, save: isSaved }),
  watch: (server, uri, isWatched) => post(`servers/${encodeURIComponent(server)}/watch`, { uri, watch: isWatched }),
  refresh: (server) => post(`servers/${encodeURIComponent(server)}/refresh`),
  restart: (server) => post(`servers/${encodeURIComponent(server)}/restart`),
};

/** Call a listener with each event of the inspector, with those that fail, and with its connection state; reconnects by itself. */
export function listen({ onEvent, onFailure, onConnected }) {
  const source = new EventSource("events");
  for (const kind of ["state", "server", "request", "question", "question-over", "message"]) {
    source.addEventListener(kind, (event) => {
      try {
        onEvent(kind, parse(event.data));
      } catch (error) {
        onFailure(kind, error); // the next events are shown nevertheless
      }
    });
  }
  source.onopen = () => onConnected(true);
  source.onerror = () => onConnected(false);
}
