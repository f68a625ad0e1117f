// Questions to the user about what an app wants to do.

import { visible } from "../format.js";
import { jsonTree } from "../content/json-tree.js";
import { html, nothing, repeat } from "../lit.js";
import { changed } from "../store.js";
import { AppError } from "./host.js";

export class Consents {
  constructor() {
    this.open = [];
    this.always = new Set();
    this.count = 0;
  }

  /**
   * Wait until the user agrees; throws an `AppError` if not.
   *
   * @param wish  `text` and `subject`; `value` to show; `key` that can be allowed always; `label` of the button, and
   *   `act`, which it does; `id` of the app's request
   */
  ask(wish) {
    if (wish.key && this.always.has(wish.key)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.open.push({ ...wish, number: ++this.count, resolve, reject });
    });
  }

  /** End a question whose request the app has cancelled. */
  withdraw(id) {
    for (const wish of this.open.filter((each) => each.id === id)) this.end(wish, false);
  }

  end(wish, isAllowed) {
    this.open = this.open.filter((each) => each !== wish);
    if (isAllowed) wish.resolve();
    else wish.reject(new AppError("the user refused"));
    changed();
  }

  view() {
    return html`<div aria-live="assertive">${repeat(this.open, ({ number }) => number, (wish) => this.card(wish))}</div>`;
  }

  card(wish) {
    const allow = () => {
      wish.act?.();
      this.end(wish, true);
    };
    const allowAlways = () => {
      this.always.add(wish.key);
      for (const each of this.open.filter(({ key }) => key === wish.key)) this.end(each, true);
    };
    return html`<div class="consent" role="group" aria-label="Wish of the app">
      <p>${wish.text} <code>${visible(wish.subject)}</code></p>
      ${wish.value === undefined ? nothing : jsonTree(wish.value)}
      <div class="actions">
        <button type="button" class="primary" @click=${allow}>${wish.label ?? "Allow once"}</button>
        ${wish.key ? html`<button type="button" @click=${allowAlways}>Always in this app</button>` : nothing}
        <button type="button" @click=${() => this.end(wish, false)}>Refuse</button>
      </div>
    </div>`;
  }
}
