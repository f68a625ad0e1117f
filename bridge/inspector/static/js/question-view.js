// Questions of servers: a form, a page to visit, a message for a model, or folders.

import { api } from "./api.js";
import { contentBlocks, link } from "./content.js";
import { draftOf, editor } from "./draft.js";
import { visible } from "./format.js";
import { html, nothing, repeat } from "./lit.js";
import { attempt, changed } from "./store.js";

/** Texts that are typed as answers, by the question's number. */
const texts = new Map();

/** All open questions. */
export function questionList(questions) {
  if (!questions.length) return nothing;
  return html`<section class="questions" aria-live="assertive" aria-label="Questions">
    ${repeat(questions, ({ number }) => number, questionView)}
  </section>`;
}

function questionView(question) {
  const { method, params = {} } = question;
  if (method === "sampling/createMessage") return sampling(question, params);
  if (method === "roots/list") return roots(question);
  return params.mode === "url" ? visit(question, params) : elicitation(question, params);
}

const answer = ({ number }, value) => attempt(() => api.answer(number, value));

/** The frame of a question: heading, body, and the answers to choose from. */
function card(question, heading, body, answers) {
  const [[, main]] = answers;
  const submit = (event) => {
    event.preventDefault();
    main?.();
  };
  return html`<form class="question" @submit=${submit} novalidate>
    <h3>${visible(question.server)} ${heading}</h3>
    ${body}
    <div class="actions">
      ${answers.map(([label, act], index) =>
        index === 0
          ? html`<button class="primary" ?disabled=${!act}>${label}</button>`
          : html`<button type="button" @click=${act}>${label}</button>`,
      )}
    </div>
  </form>`;
}

const refusals = (question) => [
  ["Decline", () => answer(question, { action: "decline" })],
  ["Cancel", () => answer(question, { action: "cancel" })],
];

function elicitation(question, { message, requestedSchema }) {
  const draft = draftOf(`question ${question.number}`, requestedSchema, { prefills: true });
  const accept = draft.value === null ? null : () => answer(question, { action: "accept", content: draft.value });
  const body = html`<p class="message" dir="auto">${visible(message)}</p>${editor(draft, "Answer as JSON")}`;
  return card(question, "asks you", body, [["Submit", accept], ...refusals(question)]);
}

function visit(question, { message, url }) {
  const body = html`<p class="message" dir="auto">${visible(message)}</p>
    <p>${link(url)}</p>
    <p class="help">Open the page only if you trust ${hostOf(url)}.</p>`;
  const done = () => answer(question, { action: "accept" });
  return card(question, "asks you to visit a page", body, [["Continue", done], ...refusals(question)]);
}

function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return visible(url);
  }
}

function sampling(question, { messages, systemPrompt, maxTokens }) {
  const content = { type: "text", text: texts.get(question.number) ?? "" };
  const reply = () => answer(question, { role: "assistant", content, model: "a person", stopReason: "endTurn" });
  const body = html`
    ${systemPrompt ? html`<h4>system</h4><pre class="text" dir="auto">${visible(systemPrompt)}</pre>` : nothing}
    ${messages.map(({ role, content: each }) => html`<h4>${visible(role)}</h4>${contentBlocks([each].flat())}`)}
    ${textInput(question, `Answer in the model's place, up to ${maxTokens} tokens`)}
  `;
  return card(question, "asks your model", body, [["Answer", reply], ["Refuse", () => answer(question, null)]]);
}

function roots(question) {
  const lines = (texts.get(question.number) ?? "").split("\n").map((line) => line.trim()).filter(Boolean);
  const share = () => answer(question, { roots: lines.map((uri) => ({ uri })) });
  const body = textInput(question, "Folders, one URI a line, such as file:///tmp; none for none");
  return card(question, "asks for your folders", body, [["Answer", share], ["Refuse", () => answer(question, null)]]);
}

function textInput({ number }, label) {
  const set = ({ target }) => {
    texts.set(number, target.value);
    changed();
  };
  return html`<label class="field"><span>${label}</span><textarea rows="3" @input=${set}></textarea></label>`;
}
