// Two requests beside each other, with the lines in which they differ.

import { timeOfDay, visible } from "./format.js";
import { pretty } from "./json.js";
import { html, nothing } from "./lit.js";
import { figures } from "./request-view.js";
import { hrefTo } from "./route.js";
import { detailsOf, requestNumbered } from "./store.js";

const MAX_LINES = 1500;

export function compareView({ first, second }) {
  const pair = [first, second].map(requestNumbered);
  if (!pair.every(Boolean)) return html`<p class="muted">One of the two requests is no longer kept.</p>`;
  const details = pair.map(detailsOf);
  return html`<article>
    <header class="bar"><h2>Compare</h2><a class="button" href=${hrefTo("history")}>Back to the history</a></header>
    <div class="compared">${pair.map(
      (request) => html`<section>
        <h3>${visible(request.params.name ?? request.params.uri ?? request.method)}</h3>
        <p class="muted">${visible(request.server)} · <time>${timeOfDay(request.at)}</time> · ${request.state} · <span class="figures">${figures(request)}</span></p>
      </section>`,
    )}</div>
    ${compared("Arguments", pair.map(({ params }) => params.arguments ?? params))}
    ${details.every(Boolean) ? compared("Results", details.map(({ answer, problem }) => answer?.result ?? answer ?? problem ?? null)) : nothing}
  </article>`;
}

function compared(heading, values) {
  const [left, right] = values.map((value) => visible(pretty(value ?? null)).split("\n"));
  const marked = differences(left, right);
  const isSame = !marked.flat().some(({ isOwn }) => isOwn);
  return html`<h3>${heading} <span class="muted">${isSame ? "equal" : "different"}</span></h3>
    <div class="compared">${marked.map(
      (lines, index) => html`<pre class="text code" tabindex="0" aria-label="${heading} of the ${index ? "second" : "first"}">${lines.map(
        ({ line, isOwn }) => (isOwn ? html`<mark>${line}</mark>\n` : `${line}\n`),
      )}</pre>`,
    )}</div>`;
}

const plain = (lines) => lines.map((line) => ({ line, isOwn: false }));

/** Lines of both texts; those that the longest common subsequence does not have are marked. */
function differences(left, right) {
  if (left.length > MAX_LINES || right.length > MAX_LINES) {
    const [inLeft, inRight] = [new Set(left), new Set(right)];
    return [left.map((line) => ({ line, isOwn: !inRight.has(line) })), right.map((line) => ({ line, isOwn: !inLeft.has(line) }))];
  }
  const width = right.length + 1;
  const common = new Uint16Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row--) {
    for (let column = right.length - 1; column >= 0; column--) {
      const at = row * width + column;
      common[at] = left[row] === right[column] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const [ofLeft, ofRight] = [plain(left), plain(right)];
  let [row, column] = [0, 0];
  while (row < left.length || column < right.length) {
    const at = row * width + column;
    if (row < left.length && column < right.length && left[row] === right[column]) [row, column] = [row + 1, column + 1];
    else if (column === right.length || (row < left.length && common[at + width] >= common[at + 1])) ofLeft[row++].isOwn = true;
    else ofRight[column++].isOwn = true;
  }
  return [ofLeft, ofRight];
}
