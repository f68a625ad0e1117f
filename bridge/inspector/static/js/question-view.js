// Questions of servers: a form, a page to visit, a message for a model, or folders. They are shown in a dialog.

import { api } from "./api.js";
import { contentBlocks } from "./content/content.js";
import { draftOf, editor } from "./forms/draft.js";
import { link, visible } from "./format.js";
import { html, live, nothing, render } from "./lit.js";
import { attempt, changed, state } from "./store.js";

/** Texts that are typed as answers, by the question's number. */
const texts = new Map();

/** Number of the question that the dialog shows. */
let chosen = null;
/** Number of the last question when the dialog was closed without an answer; it opens again for later ones. */
let setAside = 0;

/** Button with the number of open questions, which opens their dialog again; nothing without questions. */
export function questionBadge() {
  const { length } = state.questions;
  if (!length) return nothing;
  return html`<button type="button" class="badge" aria-haspopup="dialog" @click=${reopen}>
    ${length} ${length === 1 ? "question" : "questions"}
  </button>`;
}

function reopen() {
  setAside = 0;
  changed();
}

const lastNumber = () => state.questions.at(-1)?.number ?? 0;

/** Draw the dialog of the questions, one at a time, and open or close it. */
export function drawQuestions(dialog) {
  const { questions } = state;
  const index = Math.max(0, questions.findIndex(({ number }) => number === chosen));
  const question = questions[index];
  const isShown = question !== undefined && lastNumber() > setAside;
  if (!isShown && dialog.open) dialog.close();
  if (question && question.number !== chosen) {
    chosen = question.number;
    render(nothing, dialog); // the next one has inputs of its own
  }
  render(question ? html`${questionView(question)}${questions.length > 1 ? pager(index) : nothing}` : nothing, dialog);
  if (isShown && !dialog.open) dialog.showModal();
}

/** Close the dialog, and leave its questions open. */
export function setQuestionsAside(event) {
  event.preventDefault();
  setAside = lastNumber();
  changed();
}

function pager(index) {
  const { questions } = state;
  const show = (next) => () => {
    chosen = questions[next].number;
    changed();
  };
  return html`<p class="pager">
    <button type="button" class="quiet" ?disabled=${index === 0} @click=${show(index - 1)}>Previous</button>
    question ${index + 1} of ${questions.length}
    <button type="button" class="quiet" ?disabled=${index === questions.length - 1} @click=${show(index + 1)}>Next</button>
  </p>`;
}

function questionView(question) {
  const { method, params = {} } = question;
  if (method === "sampling/createMessage") return sampling(question, params);
  if (method === "roots/list") return roots(question);
  return params.mode === "url" ? visit(question, params) : elicitation(question, params);
}

const answer = ({ number }, value) => attempt(() => api.answer(number, value));

/** The frame of a question: heading, body, and the answers to choose from, which stay in sight while the body scrolls. */
function card(question, heading, body, answers) {
  const [[, main]] = answers;
  const submit = (event) => {
    event.preventDefault();
    main?.();
  };
  return html`<form class="question" @submit=${submit} novalidate>
    <h2 id="question-heading">${visible(question.server)} ${heading}</h2>
    <div class="question-body" tabindex="0" role="group" aria-label="Question">
      ${state.problem ? html`<p class="error" role="alert">${visible(state.problem)}</p>` : nothing} ${body}
    </div>
    <div class="actions">
      ${answers.map(([label, act], index) =>
        index === 0
          ? html`<button class="primary" ?disabled=${!act}>${label}</button>`
          : html`<button type="button" @click=${act}>${label}</button>`,
      )}
      <button type="button" class="quiet" @click=${setQuestionsAside}>Later</button>
    </div>
  </form>`;
}

const refusals = (question) => [
  ["Decline", () => answer(question, { action: "decline" })],
  ["Cancel", () => answer(question, { action: "cancel" })],
];

function elicitation(question, { message, requestedSchema }) {
  const draft = draftOf(`question ${question.number}`, requestedSchema, {
    prefills: true,
    check: (value) => api.checkAnswer(question.number, value),
  });
  const send = () => draft.refuses() || answer(question, { action: "accept", content: draft.value });
  const accept = draft.value === null ? null : send;
  const body = html`<p class="message" dir="auto">${visible(message)}</p>
    ${editor(draft, "Answer as JSON")}
    <p class="help">The server receives what you enter. Enter no passwords or keys.</p>`;
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

/** Answers that the model has proposed, by the question's number; null while it is asked. */
const proposals = new Map();

function sampling(question, { messages, systemPrompt, maxTokens, tools }) {
  const { number } = question;
  const typed = texts.get(number) ?? "";
  const proposal = proposals.get(number);
  const isProposal = proposal && textOf(proposal) === typed;
  const own = { role: "assistant", content: { type: "text", text: typed }, model: "a person", stopReason: "endTurn" };
  const reply = () => answer(question, isProposal ? proposal : own);
  const uses = isProposal ? [proposal.content].flat().filter(({ type }) => type !== "text") : [];
  const body = html`
    ${systemPrompt ? html`<h3>system</h3><pre class="text" dir="auto" tabindex="0">${visible(systemPrompt)}</pre>` : nothing}
    ${messages.map(({ role, content: each }) => html`<h3>${visible(role)}</h3>${contentBlocks([each].flat())}`)}
    ${tools?.length ? html`<h3>tools</h3><p>${tools.map(({ name }) => html`<code>${visible(name)}</code> `)}</p>` : nothing}
    ${textInput(question, `Answer in the model's place, up to ${maxTokens} tokens`)}
    ${uses.length ? html`<h3>calls of ${visible(state.model)}</h3>${contentBlocks(uses)}` : nothing}
    ${proposal === null ? html`<p class="muted" role="status">${visible(state.model)} is answering…</p>` : nothing}
  `;
  const answers = [["Answer", proposal === null ? null : reply]];
  if (state.model && proposal !== null) answers.push([`Ask ${visible(state.model)}`, () => propose(number)]);
  return card(question, "asks your model", body, [...answers, ["Refuse", () => answer(question, null)]]);
}

const textOf = ({ content }) => [content].flat().filter(({ type }) => type === "text").map(({ text }) => text).join("\n");

/** Let the model propose an answer, which the user can change and send. */
async function propose(number) {
  proposals.set(number, null);
  changed();
  const proposal = await attempt(() => api.proposal(number));
  if (proposal) {
    proposals.set(number, proposal);
    texts.set(number, textOf(proposal));
  } else {
    proposals.delete(number);
  }
  changed();
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
  return html`<label class="field"><span>${label}</span><textarea rows="3" .value=${live(texts.get(number) ?? "")} @input=${set}></textarea></label>`;
}
