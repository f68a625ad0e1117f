// Requests of the page, with the key of the operator, which the tab keeps until it is closed.

const KEY = "bridge-admin-key";

export const key = () => sessionStorage.getItem(KEY);

export function keep(value) {
  if (value === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

/** The key is missing or wrong. */
export class RefusedError extends Error {}

async function request(path, options = {}) {
  const headers = { authorization: `Bearer ${key()}`, ...(options.body ? { "content-type": "application/json" } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401 || response.status === 403) throw new RefusedError("This key is not one of an operator.");
  return response;
}

export async function fetchState() {
  const response = await request("state");
  if (!response.ok) throw new Error(`The server answered with the status ${response.status}.`);
  return response.json();
}

/** Do an action; returns the reason why it was not done, or null. */
export async function act(action, target) {
  const response = await request("actions", { method: "POST", body: JSON.stringify({ action, ...target }) });
  if (response.ok) return null;
  return response.status === 409 ? (await response.json()).problem : response.text();
}
