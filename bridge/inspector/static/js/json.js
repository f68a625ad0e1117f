// JSON whose large integers keep all digits: beyond 2^53 they are BigInt.

export function parse(text) {
  return JSON.parse(text, (_key, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

/** JSON with indents. */
export function pretty(value) {
  return written(value, 2);
}

/** JSON on one line. */
export function compact(value) {
  return written(value, 0);
}

function written(value, indent) {
  const raw = JSON.rawJSON ?? String; // browsers since 2025 have it
  return JSON.stringify(value, (_key, each) => (typeof each === "bigint" ? raw(String(each)) : each), indent);
}
