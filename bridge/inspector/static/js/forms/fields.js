// Fields of a form, made from a JSON Schema. A field holds what the user has typed, and is read as JSON.

import { compact, parse, pretty } from "../json.js";
import { SUGGEST, Suggestions } from "./suggestions.js";

const MAX_DEPTH = 12;
const MAX_OPEN_DEPTH = 4; // a schema that refers to itself has no end
const TEXT_INPUTS = { date: "date", email: "email", uri: "url", url: "url" };
let count = 0;

/** Follow local references and merge `allOf`; anything else stays as it is. */
export function resolved(schema, root, depth = 0) {
  if (schema === true || schema === undefined || schema === null || typeof schema !== "object") return {};
  let result = schema;
  if (typeof schema.$ref === "string" && depth < MAX_DEPTH) {
    const { $ref, ...beside } = schema;
    result = { ...resolved(pointed($ref, root), root, depth + 1), ...beside };
  }
  if (Array.isArray(result.allOf) && depth < MAX_DEPTH) {
    const { allOf, ...beside } = result;
    result = [...allOf.map((part) => resolved(part, root, depth + 1)), beside].reduce(merged, {});
  }
  return result;
}

function pointed(reference, root) {
  if (!reference.startsWith("#")) return {};
  const steps = reference.slice(1).split("/").slice(1).map((step) => decodeURIComponent(step));
  return steps.reduce((at, step) => at?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], root) ?? {};
}

function merged(one, other) {
  return {
    ...one,
    ...other,
    properties: { ...one.properties, ...other.properties },
    required: [...(one.required ?? []), ...(other.required ?? [])],
  };
}

/** True if a nested value is part of the form from the start. */
function isOpen({ isRequired, depth }, start) {
  return (isRequired && depth < MAX_OPEN_DEPTH) || start !== undefined;
}

/** Types that a schema names; empty for any. */
function typesOf(schema) {
  if (typeof schema.type === "string") return [schema.type];
  return Array.isArray(schema.type) ? schema.type : [];
}

/** Alternatives of a union, and true if null is one more. */
function alternativesOf(schema, root) {
  const types = typesOf(schema);
  const listed = schema.anyOf ?? schema.oneOf ?? (types.length > 1 ? types.map((type) => ({ ...schema, type })) : null);
  if (!Array.isArray(listed) || !listed.length) return null;
  const all = listed.map((each) => ({ label: labelOf(each, root), schema: resolved(each, root) }));
  const others = all.filter(({ schema: each }) => each.type !== "null" && each.const !== null);
  return { alternatives: others, all, isNullable: others.length < all.length };
}

function labelOf(schema, root) {
  const found = resolved(schema, root);
  if (found.title) return found.title;
  if (typeof schema?.$ref === "string") return schema.$ref.split("/").at(-1);
  if ("const" in found) return String(found.const);
  return typesOf(found).join(" or ") || "any JSON";
}

/** A schema in place of the alternatives `integer` and `number`, which are one field; undefined for any others. */
function numeric(alternatives) {
  const isNumeric = ({ schema }) => ["integer", "number"].includes(schema.type) && !schema.enum && !("const" in schema);
  if (alternatives.length < 2 || !alternatives.every(isNumeric)) return undefined;
  return alternatives.find(({ schema }) => schema.type === "number")?.schema ?? alternatives[0].schema;
}

/** Titled constants, as forms of elicitation list them: `oneOf: [{const, title}]`. */
function constantsOf(alternatives) {
  const isConstant = alternatives?.length > 0 && alternatives.every(({ schema }) => "const" in schema);
  return isConstant ? alternatives.map(({ label, schema }) => ({ value: schema.const, label })) : null;
}

/**
 * Make the field of a schema.
 *
 * @param schema  the schema
 * @param root  the schema that its references point into
 * @param value  JSON to start with; undefined for none
 * @param options  `isRequired`; `prefills`: start with defaults instead of only naming them
 */
export function makeField(schema, root, value, { isRequired = true, prefills = false, depth = 0 } = {}) {
  const found = resolved(schema, root);
  const start = value === undefined && prefills ? found.default : value;
  const base = { id: `field-${++count}`, schema: found, root, isRequired, prefills, depth };
  if ("const" in found) return { ...base, kind: "constant", value: found.const };
  if (Array.isArray(found.enum)) {
    const labels = Array.isArray(found.enumNames) ? found.enumNames : [];
    return choice(base, found.enum.map((each, index) => ({ value: each, label: labels[index] ?? String(each) })), start);
  }
  const union = alternativesOf(found, root);
  if (union) return unionField(base, union, start);
  const [type] = typesOf(found);
  if (depth >= MAX_DEPTH) return jsonField(base, start);
  if (type === "object" || (!type && found.properties)) return objectField(base, start);
  if (type === "array") return listField(base, start);
  if (type === "boolean") {
    return isRequired
      ? { ...base, kind: "boolean", isChecked: start === true }
      : choice(base, [true, false].map((each) => ({ value: each, label: String(each) })), start);
  }
  if (type === "number" || type === "integer") return { ...base, kind: "number", text: textOf(start) };
  if (type === "null") return { ...base, kind: "constant", value: null };
  if (type === "string" && (start === undefined || typeof start === "string")) return textField(base, start);
  return jsonField(base, start);
}

const textOf = (value) => (value === undefined ? "" : String(value));

function textField(base, start) {
  const { format, maxLength, [SUGGEST]: fetchValues } = base.schema;
  const isShort = fetchValues || (maxLength !== undefined && maxLength <= 80);
  const suggestions = fetchValues ? new Suggestions(fetchValues) : null;
  return { ...base, kind: "text", input: TEXT_INPUTS[format] ?? (isShort ? "text" : "area"), text: textOf(start), isGiven: start !== undefined, suggestions };
}

function jsonField(base, start) {
  return { ...base, kind: "json", text: start === undefined ? "" : pretty(start) };
}

function choice(base, options, start) {
  const index = options.findIndex(({ value }) => start !== undefined && compact(value) === compact(start));
  return { ...base, kind: "choice", options, index: index < 0 && base.isRequired && options.length === 1 ? 0 : index };
}

function unionField(base, { alternatives, all, isNullable }, start) {
  const { isRequired, prefills, depth, root } = base;
  const constants = constantsOf(alternatives);
  if (constants) return choice(base, constants, start);
  const number = numeric(alternatives);
  const offered = number ? [{ label: labelOf(number, root), schema: number }] : alternatives;
  const choices = (isNullable && isRequired) || !alternatives.length ? [...offered, ...all.filter((each) => !alternatives.includes(each))] : offered;
  if (choices.length === 1) {
    const { description, default: initial } = base.schema;
    const inner = { description, ...choices[0].schema, ...(initial == null ? {} : { default: initial }) };
    return makeField(inner, root, start ?? undefined, { isRequired, prefills, depth });
  }
  const selected = start === undefined ? 0 : Math.max(0, choices.findIndex(({ schema }) => fits(schema, start, root)));
  const field = { ...base, kind: "union", alternatives: choices, selected, isSet: isOpen(base, start) };
  if (field.isSet) select(field, selected, start);
  return field;
}

/** Choose an alternative of a union. */
export function select(field, selected, value) {
  field.selected = selected;
  field.isSet = true;
  const { schema } = field.alternatives[selected];
  field.inner = makeField(schema, field.root, value, { prefills: field.prefills, depth: field.depth + 1 });
}

/** True if a value has the outer form of a schema. */
function fits(schema, value, root) {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  const types = typesOf(schema).map((each) => (each === "integer" ? "number" : each));
  if ("const" in schema) return schema.const === value;
  if (schema.enum) return schema.enum.includes(value);
  if (types.length && !types.includes(type)) return false;
  if (type !== "object") return true;
  const properties = schema.properties ?? {};
  const hasAll = (schema.required ?? []).every((name) => Object.hasOwn(value, name));
  const hasOnly = schema.additionalProperties !== false || Object.keys(value).every((name) => Object.hasOwn(properties, name));
  const hasConstants = Object.entries(properties).every(([name, each]) => {
    const property = resolved(each, root);
    return !("const" in property) || !Object.hasOwn(value, name) || property.const === value[name];
  });
  return hasAll && hasOnly && hasConstants;
}

function listField(base, start) {
  const items = base.schema.items ?? {};
  const field = { ...base, kind: "list", isSet: base.isRequired || start !== undefined, items: [] };
  const options = resolved(items, base.root);
  const constants = constantsOf(alternativesOf(options, base.root)?.alternatives);
  const values = options.enum?.map((value) => ({ value, label: String(value) })) ?? constants;
  if (values && base.schema.uniqueItems !== false) {
    const chosen = Array.isArray(start) ? start : [];
    return { ...field, kind: "choices", options: values, chosen: new Set(values.flatMap(({ value }, index) => (chosen.includes(value) ? [index] : []))) };
  }
  for (const value of Array.isArray(start) ? start : []) addItem(field, value);
  return field;
}

/** The field of an object; of any object if the schema is malformed. */
export function makeForm(schema, value, options) {
  try {
    return makeField({ type: "object", ...schema }, schema, value, options);
  } catch {
    return makeField({ type: "object" }, {}, value, options);
  }
}

/** Add an item to a list. */
export function addItem(field, value) {
  const { root, prefills, depth } = field;
  field.items.push(makeField(field.schema.items ?? {}, root, value, { prefills, depth: depth + 1 }));
  field.isSet = true;
}

function objectField(base, start) {
  const field = { ...base, kind: "object", isSet: isOpen(base, start), properties: [], extras: [] };
  if (field.isSet) fill(field, start);
  return field;
}

/** Make the fields of an object's properties. */
export function fill(field, start = {}) {
  const { schema, root, prefills, depth } = field;
  const required = new Set(schema.required ?? []);
  const given = start !== null && typeof start === "object" ? start : {};
  field.isSet = true;
  field.properties = Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    field: makeField(property, root, Object.hasOwn(given, name) ? given[name] : undefined, { isRequired: required.has(name), prefills, depth: depth + 1 }),
  }));
  field.extras = [];
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(schema.properties ?? {}, name)) addExtra(field, name, value);
  }
}

/** Schema of properties that an object does not name; undefined if it allows none. */
export function extraSchema({ schema }) {
  const { additionalProperties: extra, properties } = schema;
  if (extra === false || (extra === undefined && properties)) return undefined;
  return extra === undefined || extra === true ? {} : extra;
}

/** Add a property that the schema does not name. */
export function addExtra(field, name = "", value = undefined) {
  const { root, prefills, depth } = field;
  field.extras.push({ name, field: makeField(extraSchema(field) ?? {}, root, value, { prefills, depth: depth + 1 }) });
}

/**
 * Read a field as JSON; undefined if it is not set. A value of the wrong kind is read as well: the server judges it.
 *
 * @param problems  receives a sentence for each text that is not JSON
 */
export function read(field, problems, name = "") {
  return field.isSet === false ? undefined : readers[field.kind](field, problems, name);
}

/** Required values within a field that the user has not given; an empty text that the JSON names is given. */
export function missingFields(field) {
  if (field.isSet === false) return field.isRequired ? [field] : [];
  const nested = {
    object: ({ properties, extras }) => [...properties, ...extras].map((each) => each.field),
    list: ({ items }) => items,
    union: ({ inner }) => [inner],
  }[field.kind];
  if (nested) return nested(field).flatMap(missingFields);
  return isBlank(field) ? [field] : [];
}

/** True for a required value that is not set; a text that is no JSON is reported elsewhere. */
export function isBlank(field) {
  const problems = [];
  return field.isRequired && read(field, problems) === undefined && !problems.length;
}

const readers = {
  constant: ({ value, isRequired, schema }) => (isRequired || schema.default === value ? value : undefined),
  boolean: ({ isChecked }) => isChecked,
  text: ({ text, isGiven }) => (text === "" && !isGiven ? undefined : text),
  choice: ({ options, index }) => options[index]?.value,
  choices: ({ options, chosen }) => options.filter((_, index) => chosen.has(index)).map(({ value }) => value),
  number({ text }) {
    if (text.trim() === "") return undefined;
    const value = Number(text);
    if (Number.isNaN(value)) return text;
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? parse(text) : value;
  },
  json({ text }, problems, name) {
    if (text.trim() === "") return undefined;
    try {
      return parse(text);
    } catch (error) {
      problems.push(`${name}: ${error.message}`);
      return undefined;
    }
  },
  list: ({ items }, problems, name) =>
    items.map((item, index) => read(item, problems, `${name}[${index}]`)).map((value, index) => value ?? (items[index].kind === "text" ? "" : null)),
  union: ({ inner }, problems, name) => read(inner, problems, name),
  object({ properties, extras }, problems, name) {
    const entries = [...properties, ...extras].map((each) => [
      each.name,
      read(each.field, problems, name ? `${name}.${each.name}` : each.name),
    ]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  },
};
