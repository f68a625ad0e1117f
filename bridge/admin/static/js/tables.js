// Tables of the state of a server.

import { bytes, milliseconds, visible } from "../inspector/js/format.js";
import { html, nothing } from "../inspector/js/lit.js";

const isMany = (state) => (state.processes?.length ?? 1) > 1;

/** Time since something began, as people read it. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const text = (value) => (value === null || value === undefined ? "" : visible(String(value)));
const list = (values) => (values ? values.map(visible).join(", ") : "all");
const timeOf = (iso) => new Date(iso).toLocaleTimeString("en-GB");

/**
 * A table under a heading, whose total may be larger than its number of rows.
 *
 * @param columns  pairs of a heading and a function that returns the cell of a row
 */
function table(heading, rows, columns, { total = rows.length, isBad = () => false, none = "none" } = {}) {
  const shown = columns.filter(Boolean);
  return html`<section aria-label=${heading}>
    <h2>${heading} <span class="count">${total}</span></h2>
    ${
      rows.length
        ? html`<div class="scrolled"><table>
            <thead><tr>${shown.map(([name]) => html`<th scope="col">${name}</th>`)}</tr></thead>
            <tbody>${rows.map(
              (row) => html`<tr class=${isBad(row) ? "is-bad" : ""}>${shown.map(([, cell]) => html`<td>${cell(row)}</td>`)}</tr>`,
            )}</tbody>
          </table></div>`
        : html`<p class="muted">${none}</p>`
    }
  </section>`;
}

const worker = (state) => isMany(state) && ["worker", (row) => text(row.worker)];

function button(label, name, press) {
  return html`<button type="button" aria-label="${label} ${visible(name)}" @click=${press}>${label}</button>`;
}

export function servers(state, act) {
  const stateOf = ({ state: name, lastError, retrySeconds }) => html`<span class="dot ${name}"></span> ${name.replace("_", " ")}
    ${retrySeconds === null || retrySeconds === undefined ? nothing : html`<span class="muted">retried in ${age(retrySeconds)}</span>`}
    ${lastError ? html`<p class="muted">${visible(lastError)}</p>` : nothing}`;
  return table(
    "Servers",
    state.servers,
    [
      ["name", ({ name, required }) => html`${visible(name)}${required ? html` <span class="muted">required</span>` : nothing}`],
      worker(state),
      ["state", stateOf],
      ["tools", ({ tools }) => tools.length],
      ["restarts", ({ restarts, reconnects }) => Math.max(restarts ?? 0, reconnects)],
      ["memory", ({ memoryBytes }) => (memoryBytes ? bytes(memoryBytes) : "")],
      ["p50", ({ latency }) => milliseconds(latency?.p50Ms)],
      ["p95", ({ latency }) => milliseconds(latency?.p95Ms)],
      ["", ({ name }) => button("Restart", name, () => act("restart", { server: name }))],
    ],
    { isBad: ({ state: name }) => name === "failed" || name === "needs_auth" },
  );
}

export function calls(state, act) {
  const progress = ({ progress, total }) => {
    if (progress === null) return "";
    return total ? html`<progress value=${progress} max=${total} aria-label="progress"></progress> ${progress}/${total}` : progress;
  };
  return table(
    "Calls under way",
    state.calls,
    [
      ["tool", ({ name, kind }) => html`${text(name)}${kind === "tool" ? nothing : html` <span class="muted">${kind}</span>`}`],
      worker(state),
      ["server", ({ server }) => text(server)],
      ["caller", ({ caller }) => text(caller)],
      ["team", ({ team }) => text(team)],
      ["client", ({ client }) => text(client)],
      ["age", ({ ageSeconds }) => age(ageSeconds)],
      ["progress", progress],
      ["id", ({ id }) => html`<code>${id}</code>`],
      ["", ({ id, mayCancel }) => (mayCancel ? button("Cancel", id, () => act("cancel", { call: id })) : nothing)],
    ],
    { total: state.callCount },
  );
}

export function recent(state) {
  const what = (row) => text(row.tool ?? row.resource ?? row.prompt ?? [row.action, row.target].filter(Boolean).join(" "));
  return table(
    "Recent",
    state.recent,
    [
      ["time", ({ time }) => timeOf(time)],
      ["event", ({ event }) => event],
      ["name", what],
      worker(state),
      ["server", ({ server }) => text(server)],
      ["caller", ({ caller }) => text(caller)],
      ["team", ({ team }) => text(team)],
      ["outcome", ({ outcome, error }) => (outcome === "error" ? `${outcome} ${text(error)}` : outcome)],
      ["duration", ({ duration_ms }) => milliseconds(duration_ms)],
      ["size", ({ result_bytes }) => (result_bytes ? bytes(result_bytes) : "")],
      ["id", ({ request_id }) => html`<code>${text(request_id)}</code>`],
    ],
    { isBad: ({ outcome }) => !["ok", "task", "input_required"].includes(outcome) },
  );
}

export function refusals(state) {
  return table("Refused requests", state.refusals, [
    ["time", ({ time }) => timeOf(time)],
    worker(state),
    ["status", ({ status }) => status],
    ["reason", ({ reason }) => text(reason)],
  ]);
}

const SIZES = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]];
const PERIODS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

/** A number in the largest unit of which it has one. */
function inUnit(number, units) {
  const [unit, length] = units.find(([, each]) => number >= each) ?? units.at(-1);
  return `${+(number / length).toFixed(1)} ${unit}`;
}

/** Calls, or bytes, in a period, as their limit is written. */
function inPeriod(rate) {
  if (rate === null) return "";
  const most = rate.bytes === undefined ? rate.calls : inUnit(rate.bytes, SIZES);
  return `${most} in ${inUnit(rate.perSeconds, PERIODS)}`;
}

export function limits(state) {
  const of = (used, most) => (most === null ? used : `${used} of ${most}`);
  const meter = (used, rate) =>
    rate === null ? "" : html`<meter value=${used} max="1" aria-label="used"></meter> ${Math.round(used * 100)} % of ${inPeriod(rate)}`;
  return table("Limits", state.callers, [
    ["caller", ({ name }) => text(name)],
    ["kind", ({ kind }) => kind],
    worker(state),
    ["calls", ({ calls, maxCalls }) => of(calls, maxCalls)],
    ["streams", ({ streams, maxStreams }) => of(streams, maxStreams)],
    ["tasks", ({ tasks, maxTasks }) => of(tasks, maxTasks ?? null)],
    ["rate", ({ rate, rateUsed }) => meter(rateUsed, rate)],
    ["bytes", ({ bytes: most, bytesUsed }) => meter(bytesUsed, most)],
  ]);
}

export function teams(state) {
  const errors = (found) => Object.entries(found).map(([cause, count]) => `${text(cause)}: ${count}`).join(", ");
  return table(
    "Teams",
    Object.entries(state.teams).map(([name, usage]) => ({ name, ...usage })),
    [
      ["team", ({ name }) => text(name)],
      ["calls", ({ calls }) => calls],
      ["errors", (row) => errors(row.errors)],
      ["time", ({ seconds }) => age(seconds)],
      ["results", ({ resultBytes }) => bytes(resultBytes)],
      ["tokens of results", ({ estimatedResultTokens }) => estimatedResultTokens.toLocaleString("en")],
      ["tokens of definitions", ({ estimatedDefinitionTokens }) => (estimatedDefinitionTokens ?? 0).toLocaleString("en")],
    ],
  );
}

export function keys(state) {
  return table("Keys", state.keys, [
    ["name", ({ name }) => text(name)],
    ["team", ({ team }) => text(team)],
    ["profiles", ({ profiles }) => list(profiles)],
    ["tools", ({ tools }) => list(tools)],
    ["scopes", ({ scopes }) => list(scopes)],
    ["rate", ({ rate }) => inPeriod(rate)],
    ["calls", ({ concurrency }) => text(concurrency)],
    ["tasks", ({ tasks }) => text(tasks)],
    ["bytes", ({ bytes: most }) => inPeriod(most)],
  ]);
}

export function profiles(state) {
  const claims = (found) => Object.entries(found).map(([name, value]) => `${visible(name)}=${visible(value)}`).join(", ");
  return table("Profiles", state.profiles, [
    ["name", ({ name }) => text(name)],
    worker(state),
    ["tools", ({ tools }) => tools],
    ["sessions", ({ sessions }) => sessions],
    ["scopes", ({ scopes }) => (scopes.length ? list(scopes) : "")],
    ["claims", (row) => claims(row.claims)],
  ]);
}

export function tools(state, act) {
  const press = ({ name, enabled }) => button(enabled ? "Disable" : "Enable", name, () => act(enabled ? "disable" : "enable", { tool: name }));
  return table(
    "Tools",
    state.tools,
    [["name", ({ name }) => text(name)], ["server", ({ server }) => text(server)], ["state", ({ enabled }) => (enabled ? "enabled" : "disabled")], ["", press]],
    { isBad: ({ enabled }) => !enabled },
  );
}

export function tasks(state, act) {
  return table(
    "Tasks",
    state.tasks,
    [
      ["id", ({ id }) => html`<code>${text(id)}…</code>`],
      ["tool", ({ tool }) => text(tool)],
      worker(state),
      ["caller", ({ caller }) => text(caller)],
      ["state", ({ status }) => text(status)],
      ["age", ({ ageSeconds }) => age(ageSeconds)],
      ["", ({ id }) => button("Cancel", id, () => act("cancel-task", { task: id }))],
    ],
    { total: state.taskCount },
  );
}

export function sessions(state) {
  return table(
    "Sessions",
    state.sessions,
    [
      ["id", ({ id }) => html`<code>${text(id)}…</code>`],
      worker(state),
      ["caller", ({ caller }) => text(caller)],
      ["client", ({ client }) => text(client)],
      ["protocol", ({ protocolVersion }) => text(protocolVersion)],
      ["age", ({ ageSeconds }) => age(ageSeconds)],
      ["idle", ({ idleSeconds }) => age(idleSeconds)],
      ["requests", ({ requests }) => requests],
    ],
    { total: state.sessionCount },
  );
}
