// Arguments that the user edits, in a form and as JSON beside it. Each follows the other.

import { api } from "../api.js";
import { makeForm, missingFields, read } from "./fields.js";
import { form, isEmpty } from "./form.js";
import { visible } from "../format.js";
import { parse, pretty } from "../json.js";
import { html, live, nothing } from "../lit.js";
import { changed, state } from "../store.js";

const CHECK_DELAY_MS = 300;

/** The draft of an item; a new one if there is none, or if the schema has changed. */
export function draftOf(key, schema, options = {}) {
  const present = state.drafts.get(key);
  const signature = JSON.stringify(schema);
  if (present?.signature === signature) return present;
  const draft = new Draft(schema, signature, options);
  state.drafts.set(key, draft);
  return draft;
}

class Draft {
  constructor(schema, signature, { prefills = false, check = null }) {
    this.schema = schema;
    this.signature = signature;
    this.prefills = prefills;
    this.check = check;
    this.problem = "";
    this.violation = "";
    this.load(undefined);
  }

  /** Edit other arguments. */
  load(value) {
    this.field = makeForm(this.schema, value, { prefills: this.prefills });
    this.isTouched = false;
    this.marksMissing = false;
    this.takeForm();
  }

  /** The arguments; null while they cannot be read. */
  get value() {
    return this.problem ? null : this.read;
  }

  /**
   * True while required values of the form are missing, which are marked, and of which the first gets the focus. JSON
   * that was written by hand is sent as it is.
   */
  refuses() {
    const [first] = this.isByHand ? [] : missingFields(this.field);
    if (!first) return false;
    this.marksMissing = true;
    changed();
    document.getElementById(first.id)?.focus();
    return true;
  }

  takeForm() {
    this.isByHand = false;
    const problems = [];
    this.read = read(this.field, problems);
    this.text = pretty(this.read);
    this.problem = problems.join("\n");
    this.inspect();
  }

  takeText(text) {
    this.isByHand = true;
    this.text = text;
    this.problem = "";
    try {
      const value = parse(text);
      if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("enter a JSON object");
      this.field = makeForm(this.schema, value);
      this.read = value;
    } catch (error) {
      this.problem = error.message;
    }
    this.inspect();
  }

  /** Check the arguments against the schema, soon; the last outcome stays until then. */
  inspect() {
    clearTimeout(this.timer);
    if (!this.check || this.problem || !this.isTouched) return;
    const value = this.read;
    this.timer = setTimeout(async () => {
      const found = await this.check(value).catch(() => null);
      if (this.read === value && found) this.violation = found.problem ?? "";
      changed();
    }, CHECK_DELAY_MS);
  }
}

/** Check of a tool's arguments, as the server will do it. */
export const checkOf = (server, tool) => (value) => api.check(server, tool, value);

/** The form, and the JSON beside it. */
export function editor(draft, label = "Arguments as JSON") {
  const formChanged = () => {
    draft.isTouched = true;
    draft.takeForm();
    changed();
  };
  const textChanged = ({ target }) => {
    draft.isTouched = true;
    draft.takeText(target.value);
    changed();
  };
  if (isEmpty(draft.field)) return html`<p class="muted">No arguments.</p>`;
  return html`<div class="editor">
      ${form(draft.field, { changed: formChanged, marksMissing: draft.marksMissing })}
      <label class="beside">
        <span class="label">${label}</span>
        <textarea
          class="code" rows=${Math.min(24, Math.max(4, draft.text.split("\n").length))} spellcheck="false"
          .value=${live(draft.text)} @input=${textChanged}
        ></textarea>
      </label>
    </div>
    ${draft.problem
      ? html`<p class="warning" role="status">${visible(draft.problem)}</p>`
      : draft.violation
        ? html`<p class="help violation" role="status">${visible(draft.violation)}</p>`
        : nothing}`;
}
