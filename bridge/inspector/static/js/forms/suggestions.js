// Values that a server offers for a text while it is typed.

import { changed } from "../store.js";

const DELAY_MS = 150;

/** Key of a schema for the function that fetches values for a text; no schema of a server can have it. */
export const SUGGEST = Symbol("suggest");

export class Suggestions {
  constructor(fetchValues) {
    this.fetchValues = fetchValues;
    this.values = [];
  }

  /** Fetch the values for a text, soon; the last ones stay until then. */
  ask(text) {
    clearTimeout(this.timer);
    this.text = text;
    this.timer = setTimeout(async () => {
      const found = await this.fetchValues(text).catch(() => []); // the text can be typed without
      if (this.text !== text) return;
      this.values = found;
      changed();
    }, DELAY_MS);
  }
}
