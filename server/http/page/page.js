// Puts the parts of the page together: the daemon's state, the token, documents, conversation, text.

import { ApiError, countTokens, hasToken, isToken, readFile, readModel, readState, setToken } from './api.js';
import { by, formatBytes, formatCount, plural, recall, remember, say } from './dom.js';
import { Files } from './files.js';
import { DocumentText, DocumentView } from './reader.js';
import { messagesOf, Talk } from './talk.js';

const POLL_MS = 2000;      // while the daemon does not serve
const SETTLE_MS = 250;     // before a new choice is counted

let model = null;
let poll = 0;

// ---- The daemon's state

function setLink(state, text) {
  by('link').dataset.state = state;
  by('link').textContent = text;
}

function showBanner(text) {
  by('banner').hidden = !text;
  by('banner').textContent = text;
}

async function connect() {
  try {
    model = await readModel();
    by('model').textContent = `${model.id} · ${plural(model.max_model_len, 'token')} of context`;
    clearInterval(poll);
    poll = 0;
    setLink('up', 'ready');
    showBanner('');
    await files.load();
  } catch (error) {
    onError(error);
  }
}

const STATES = { loading: 'The daemon is still loading its model.', draining: 'The daemon is shutting down: it finishes what runs and takes nothing new.' };

// Waits until the daemon serves.
function waitForDaemon() {
  if (poll) return;
  poll = setInterval(async () => {
    const state = await readState();
    if (state === 'serving') {
      clearInterval(poll);
      poll = 0;
      await connect();
      say('The daemon is ready.');
    } else if (state) {
      setLink('waiting', state);
      showBanner(`${STATES[state] ?? `The daemon is ${state}.`} This page goes on when it is ready.`);
    }
  }, POLL_MS);
}

function onError(error) {
  if (!(error instanceof ApiError)) throw error;
  if (error.kind === 'stopped') return;
  if (error.kind === 'token') {
    setLink('down', 'token needed');
    return askForToken(hasToken() ? 'This token is not accepted. Check that it is complete, or ask for another one.' : '');
  }
  if (error.kind === 'gone') {
    setLink('down', 'no connection');
    showBanner(`${error.message} This page tries again every two seconds.`);
    return waitForDaemon();
  }
  if (error.kind === 'lost' || error.kind === 'busy') return checkDaemon(error);
  showBanner(error.message);
}

// After an error that may be the daemon's end, or only one call's.
async function checkDaemon(error) {
  const state = await readState();
  if (state === 'serving') {
    if (!model) showBanner(error.message);
    return;
  }
  if (!state) return onError(new ApiError('gone', 'The daemon does not answer. Check that it runs and that this machine reaches it.'));
  waitForDaemon();
}

// ---- The token

function askForToken(problem) {
  by('token-error').hidden = !problem;
  by('token-error').textContent = problem;
  if (!by('token-dialog').open) by('token-dialog').showModal();
  by('token').focus();
}

by('change-token').addEventListener('click', () => askForToken(''));
by('token-cancel').addEventListener('click', () => by('token-dialog').close());
by('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = by('token').value.trim();
  if (text && !isToken(text)) return askForToken('A token has letters, digits and marks of ASCII, without blanks.');
  setToken(text);
  by('token').value = '';
  by('token-dialog').close();
  connect();
});

// ---- Panes of narrow windows

const WIDE = matchMedia('(min-width: 760px)');

function showPane(name) {
  document.body.dataset.pane = name;
  for (const tab of document.querySelectorAll('.tabs button')) {
    // Beside the conversation there is always another pane.
    const current = tab.dataset.pane === name || (name === 'talk' && tab.dataset.pane === 'files' && WIDE.matches);
    tab.setAttribute('aria-current', current);
  }
}

for (const tab of document.querySelectorAll('.tabs button')) tab.addEventListener('click', () => showPane(tab.dataset.pane));
WIDE.addEventListener('change', () => showPane(document.body.dataset.pane));

// ---- Text of a document, and passages in it

const TITLE = 'Text';
let opened = null;   // {id, name, text, loading}
let walk = null;     // {turn, keys, at, back}: the passages of an answer, and where the focus came from

const view = new DocumentView(by('sheet'), (part, parts) => {
  by('parts').hidden = parts < 2;
  by('part').textContent = `Part ${part + 1} of ${parts}`;
  by('part-before').disabled = part === 0;
  by('part-after').disabled = part + 1 === parts;
});
by('part-before').addEventListener('click', () => view.showPart(view.part - 1));
by('part-after').addEventListener('click', () => view.showPart(view.part + 1));

function closeText() {
  opened?.loading?.abort();
  opened = null;
  walk = null;
  view.close();
  for (const id of ['steps', 'parts', 'sheet', 'close-text']) by(id).hidden = true;
  by('text-title').textContent = TITLE;
  by('text-note').textContent = 'Open a document, or a passage of an answer.';
  talk.markOpen(null, '');
}

// Reads a document that was added in this tab from there, since not every daemon keeps the bytes.
async function loadText({ id, bytes = 0 }, signal) {
  const text = new DocumentText(bytes);
  const add = (part) => {
    text.add(part);
    if (bytes > 1 << 20) by('text-note').textContent = `Loading: ${formatBytes(text.size)} of ${formatBytes(bytes)}`;
  };
  const local = files.local.get(id);
  if (!local) {
    await readFile(id, add, signal);
    return text;
  }
  for (const reader = local.stream().getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return text;
    add(value);
  }
}

// Opens a document. Returns whether its text is shown.
async function openText(file) {
  if (opened?.id === file.id && opened.text) return true;
  opened?.loading?.abort();
  const mine = { id: file.id, name: file.name, text: null, loading: new AbortController() };
  opened = mine;
  view.close();
  by('sheet').hidden = true;
  by('parts').hidden = true;
  by('close-text').hidden = false;
  by('text-title').textContent = file.name;
  by('text-note').textContent = 'Loading';
  try {
    const text = await loadText(file, mine.loading.signal);
    if (opened !== mine) return false;
    mine.text = text;
    by('sheet').hidden = false;
    by('text-note').textContent = '';
    view.open(text);
    return true;
  } catch (error) {
    if (opened !== mine || error.kind === 'stopped') return false;
    by('text-note').textContent = error.code === 'document_not_kept'
      ? 'This daemon does not keep the text of documents: start it with --documents DIR, or add the file in this tab.'
      : error.message;
    if (error.kind !== 'refused') onError(error);
    return false;
  }
}

async function readDocument(file) {
  walk = null;
  by('steps').hidden = true;
  talk.markOpen(null, '');
  showPane('text');
  if (await openText({ id: file.id, name: file.filename, bytes: file.bytes })) {
    view.mark([]);
    by('sheet').focus();
  }
}

async function openPassage(turn, key, back) {
  const passages = talk.passagesOf(turn);
  const at = passages.findIndex((passage) => passage.key === key);
  const passage = passages[at];
  const { id, name } = turn.documents[passage.document_index];
  walk = { turn, passages, at, back: back ?? walk?.back };
  talk.markOpen(turn, key);
  showPane('text');
  by('steps').hidden = passages.length < 2;
  by('step').textContent = `${at + 1} of ${passages.length}`;
  const bytes = files.files.find((file) => file.id === id)?.bytes;
  if (!(await openText({ id, name, bytes }))) {
    if (opened?.id === id) by('text-note').textContent += ` The passage: "${passage.cited_text.trim()}"`;
    return;
  }
  const here = passages.filter((one) => one.document_index === passage.document_index);
  view.mark(here.map((one) => ({ key: one.key, begin: one.start_char_index, end: one.end_char_index })));
  view.goTo(key);
}

function step(way) {
  if (!walk) return;
  const count = walk.passages.length;
  openPassage(walk.turn, walk.passages[(walk.at + way + count) % count].key);
}

by('before').addEventListener('click', () => step(-1));
by('after').addEventListener('click', () => step(1));

function leaveText() {
  const back = walk?.back;
  closeText();
  showPane('talk');
  (back?.isConnected ? back : by('question')).focus();
}

by('close-text').addEventListener('click', leaveText);
by('text').addEventListener('keydown', (event) => {
  if (event.key === 'Escape') leaveText();
});

// ---- What the next question is about

let counting = null;

async function showScope() {
  const chosen = files.chosenFiles;
  by('files-count').textContent = chosen.length || '';
  if (!poll) showBanner('');  // what it said was about an earlier step
  const scope = by('scope');
  delete scope.dataset.full;
  const about = chosen.length === 0 ? 'No document chosen: the model answers from what it has learned.'
    : `About ${chosen.length === 1 ? chosen[0].filename : plural(chosen.length, 'document')}`;
  scope.textContent = about;
  counting?.abort();
  if (chosen.length === 0 || !model) return;
  counting = new AbortController();
  const { signal } = counting;
  await new Promise((resolve) => { setTimeout(resolve, SETTLE_MS); });
  if (signal.aborted) return;
  try {
    const tokens = await countTokens(messagesOf(talk.turns, '?', chosen, false), signal);
    if (signal.aborted) return;
    const full = tokens >= model.max_model_len;
    scope.dataset.full = full;
    scope.textContent = `${about} · ${formatCount(tokens)} of ${plural(model.max_model_len, 'token')}${full ? ': too long, choose fewer' : ''}`;
  } catch (error) {
    if (error.kind === 'refused') scope.textContent = `${about} · ${error.message}`;
    else onError(error);
  }
}

// ---- Files dropped anywhere

let dragged = 0;
const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
function showDrop(on) {
  dragged = on ? dragged : 0;
  by('drop').hidden = !on;
}
addEventListener('dragenter', (event) => {
  if (hasFiles(event)) showDrop(++dragged > 0);
});
addEventListener('dragleave', (event) => {
  if (hasFiles(event)) showDrop(--dragged > 0);
});
addEventListener('dragover', (event) => {
  if (hasFiles(event)) event.preventDefault();
});
addEventListener('drop', (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  showDrop(false);
  files.add([...event.dataTransfer.files]);
});

// ---- Start

for (const id of ['passages', 'steady', 'longest']) {
  const input = by(id);
  const member = input.type === 'checkbox' ? 'checked' : 'value';
  input[member] = recall(`option.${id}`, input[member]);
  input.addEventListener('change', () => remember(`option.${id}`, input[member]));
}

const files = new Files({ onChange: () => showScope(), onOpen: readDocument, onError });
const talk = new Talk({
  documents: () => files.chosenFiles,
  model: () => model ?? { max_model_len: Infinity },
  onPassage: openPassage,
  onError,
  onEnd: () => {
    if (model && !poll) files.load().catch(onError);
  },
});

showPane('talk');
showScope();
connect();
