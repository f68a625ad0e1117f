// URI templates (RFC 6570), of which servers use the simple forms.

const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const FORMS = {
  "": { first: "", separator: ",", isNamed: false },
  "+": { first: "", separator: ",", isNamed: false, isReserved: true },
  "#": { first: "#", separator: ",", isNamed: false, isReserved: true },
  ".": { first: ".", separator: ".", isNamed: false },
  "/": { first: "/", separator: "/", isNamed: false },
  ";": { first: ";", separator: ";", isNamed: true },
  "?": { first: "?", separator: "&", isNamed: true },
  "&": { first: "&", separator: "&", isNamed: true },
};

const namesIn = (list) => list.split(",").map((name) => name.replace(/(\*|:\d+)$/, ""));

/** Names of a template's variables, each once. */
export function variablesOf(template) {
  return [...new Set([...template.matchAll(EXPRESSION)].flatMap(([, , list]) => namesIn(list)))];
}

/** The URI of a template with values; a variable without a value is left out. */
export function expanded(template, values) {
  return template.replace(EXPRESSION, (_all, operator, list) => {
    const { first, separator, isNamed, isReserved } = FORMS[operator];
    const parts = namesIn(list)
      .filter((name) => values[name])
      .map((name) => {
        const value = isReserved ? encodeURI(values[name]) : encodeURIComponent(values[name]);
        return isNamed ? `${name}=${value}` : value;
      });
    return parts.length ? first + parts.join(separator) : "";
  });
}
