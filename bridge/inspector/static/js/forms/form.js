// View of a form: the fields of `fields.js` as inputs.

import { addExtra, addItem, extraSchema, fill, isBlank, select } from "./fields.js";
import { visible } from "../format.js";
import { compact } from "../json.js";
import { html, live, nothing } from "../lit.js";

/**
 * The inputs of an object's properties.
 *
 * @param field  the field of the object
 * @param view  `changed`, called when the user has changed a value, and `marksMissing`: mark required values without one
 */
export function form(field, view) {
  return html`<div class="fields">${propertiesOf(field, view)}</div>`;
}

/** True if an object can have no properties. */
export function isEmpty(field) {
  return !field.properties.length && !extraSchema(field);
}

function propertiesOf(field, view) {
  return html`
    ${field.properties.map((property) => row(property.name, property.field, view))}
    ${extraSchema(field) && (field.extras.length || !field.properties.length || field.schema.additionalProperties)
      ? extras(field, view)
      : nothing}
  `;
}

/** A labelled value; a nested one is a group. */
function row(name, field, view) {
  const description = field.schema.description ?? "";
  const label = html`
    ${visible(field.schema.title && field.schema.title.toLowerCase() !== name.toLowerCase() ? `${name} · ${field.schema.title}` : name)}
    ${field.isRequired ? html`<abbr title="required">*</abbr>` : nothing}
    <span class="type">${typeText(field)}</span>
  `;
  const help = description ? html`<p class="help">${visible(description)}</p>` : nothing;
  if (isGroup(field)) {
    return html`<fieldset class="group">
      <legend>${label}</legend>
      ${help}${optional(field, view)}
    </fieldset>`;
  }
  if (field.kind === "boolean") {
    return html`<div class="field check">
      <label>${input(field, view, name)}<span>${label}</span></label>
      ${help}
    </div>`;
  }
  return html`<div class="field">
    <label for=${field.id}>${label}</label>
    ${input(field, view, name)}${help}
  </div>`;
}

const isGroup = ({ kind }) => ["object", "list", "union", "choices"].includes(kind);

function typeText({ schema, kind }) {
  if (kind === "choice" || kind === "choices" || kind === "boolean") return "";
  if (kind === "union") return "one of";
  const type = [schema.type ?? (kind === "json" ? "JSON" : kind)].flat().join(" or ");
  const { minimum, maximum, minLength, maxLength, minItems, maxItems } = schema;
  const range = rangeText(minimum ?? minLength ?? minItems, maximum ?? maxLength ?? maxItems);
  return [schema.format ?? type, range].filter(Boolean).join(", ");
}

function rangeText(least, most) {
  if (least === undefined && most === undefined) return "";
  if (most === undefined) return `from ${least}`;
  return least === undefined ? `up to ${most}` : `${least} to ${most}`;
}

/** A nested value, which can be added and removed if it is not required. */
function optional(field, view) {
  const act = (change) => () => {
    change();
    view.changed();
  };
  if (field.kind !== "choices" && !field.isSet) {
    const add = { object: () => fill(field), list: () => addItem(field), union: () => select(field, field.selected) }[field.kind];
    const isMarked = view.marksMissing && field.isRequired;
    return html`<button type="button" class="quiet" id=${field.id} @click=${act(add)}>Add</button>${isMarked ? missing(field) : nothing}`;
  }
  const remove = act(() => (field.isSet = false));
  return html`
    ${groups[field.kind](field, view, act)}
    ${field.isRequired || field.kind === "choices" || field.kind === "list"
      ? nothing
      : html`<button type="button" class="quiet" @click=${remove}>Remove</button>`}
  `;
}

const groups = {
  object: (field, view) => propertiesOf(field, view),
  list: (field, view, act) => html`
    ${field.items.map((item, index) => {
      const remove = act(() => {
        field.items.splice(index, 1);
        field.isSet = field.isRequired || field.items.length > 0;
      });
      return html`<div class="item">
        <span class="number">${index + 1}</span>
        <div>${isGroup(item) ? optional(item, view) : input(item, view, `item ${index + 1}`)}</div>
        <button type="button" class="quiet" aria-label="Remove item ${index + 1}" @click=${remove}>×</button>
      </div>`;
    })}
    <button type="button" class="quiet" @click=${act(() => addItem(field))}>Add item</button>
  `,
  choices: (field, view) =>
    field.options.map(({ label }, index) => {
      const toggle = ({ target }) => {
        if (target.checked) field.chosen.add(index);
        else field.chosen.delete(index);
        field.isSet = field.isRequired || field.chosen.size > 0;
        view.changed();
      };
      return html`<label class="option">
        <input type="checkbox" .checked=${live(field.chosen.has(index))} @change=${toggle}>${visible(label)}
      </label>`;
    }),
  union: (field, view, act) => html`
    <select
      aria-label="kind of value"
      .value=${live(String(field.selected))}
      @change=${({ target }) => act(() => select(field, Number(target.value)))()}
    >
      ${field.alternatives.map(
        ({ label }, index) => html`<option value=${index} ?selected=${index === field.selected}>${visible(label)}</option>`,
      )}
    </select>
    ${isGroup(field.inner) ? optional(field.inner, view) : input(field.inner, view, "value")}
  `,
};

/** Properties that the schema does not name. */
function extras(field, view) {
  return html`
    ${field.extras.map((extra, index) => {
      const rename = ({ target }) => {
        extra.name = target.value;
        view.changed();
      };
      const remove = () => {
        field.extras.splice(index, 1);
        view.changed();
      };
      return html`<div class="item">
        <input aria-label="name" placeholder="name" .value=${live(extra.name)} @input=${rename}>
        <div>${isGroup(extra.field) ? optional(extra.field, view) : input(extra.field, view, extra.name || "value")}</div>
        <button type="button" class="quiet" aria-label="Remove ${extra.name}" @click=${remove}>×</button>
      </div>`;
    })}
    <button
      type="button"
      class="quiet"
      @click=${() => {
        addExtra(field);
        view.changed();
      }}
    >Add property</button>
  `;
}

/** The control of a simple value, with a word if it is required and not set. */
function input(field, view, name) {
  const isMarked = view.marksMissing && isBlank(field);
  const state = isMarked ? { invalid: "true", note: `${field.id}-missing` } : { invalid: nothing, note: nothing };
  return html`${control(field, view, name, state)}${isMarked ? missing(field) : nothing}`;
}

const missing = ({ id }) => html`<p class="missing" id="${id}-missing">Required</p>`;

function control(field, view, name, { invalid, note }) {
  const set = (key) => ({ target }) => {
    field.isGiven = false;
    field[key] = key === "isChecked" ? target.checked : key === "index" ? Number(target.value) : target.value;
    view.changed();
  };
  const { schema } = field;
  const initial = schema.default;
  const hint = initial === undefined || initial === null ? "" : `default: ${visible(compact(initial))}`;
  switch (field.kind) {
    case "boolean":
      return html`<input id=${field.id} type="checkbox" .checked=${live(field.isChecked)} @change=${set("isChecked")}>`;
    case "choice":
      return html`<select
        id=${field.id} aria-label=${name} aria-invalid=${invalid} aria-describedby=${note}
        .value=${live(String(field.index))} @change=${set("index")}
      >
        <option value="-1" ?selected=${field.index < 0}>${field.isRequired ? "choose…" : hint || "not set"}</option>
        ${field.options.map(
          ({ label }, index) => html`<option value=${index} ?selected=${index === field.index}>${visible(label)}</option>`,
        )}
      </select>`;
    case "number":
      return html`<input
        id=${field.id} aria-label=${name} aria-invalid=${invalid} aria-describedby=${note}
        inputmode="decimal" autocomplete="off" placeholder=${hint}
        .value=${live(field.text)} @input=${set("text")}
      >`;
    case "constant":
      return html`<output id=${field.id}>${visible(compact(field.value))}</output>`;
    case "text":
      if (field.suggestions) return suggesting(field, name, set("text"), { invalid, note });
      if (field.input !== "area") {
        return html`<input
          id=${field.id} aria-label=${name} aria-invalid=${invalid} aria-describedby=${note}
          type=${field.input} autocomplete="off" placeholder=${hint}
          .value=${live(field.text)} @input=${set("text")}
        >`;
      }
      return area(field, name, hint, set("text"), "", { invalid, note });
    default:
      return area(field, name, hint || "JSON", set("text"), "code", { invalid, note });
  }
}

/** An input with the values that the server offers. */
function suggesting(field, name, set, { invalid, note }) {
  const { id, text, suggestions } = field;
  const onInput = (event) => {
    set(event);
    suggestions.ask(field.text);
  };
  return html`<input
      id=${id} aria-label=${name} aria-invalid=${invalid} aria-describedby=${note} type="text" autocomplete="off" list="${id}-values"
      .value=${live(text)} @input=${onInput} @focus=${() => suggestions.ask(field.text)}
    ><datalist id="${id}-values">${suggestions.values.map((value) => html`<option value=${value}></option>`)}</datalist>`;
}

function area(field, name, hint, set, kind, { invalid, note }) {
  const rows = Math.min(12, Math.max(kind ? 2 : 1, field.text.split("\n").length));
  return html`<textarea
    id=${field.id} class=${kind} aria-label=${name} aria-invalid=${invalid} aria-describedby=${note} rows=${rows} spellcheck="false" placeholder=${hint}
    .value=${live(field.text)} @input=${set}
  ></textarea>`;
}
