// The daemon's HTTP API, as far as the page uses it.

// Why a call failed. `kind`:
//   gone      the daemon does not answer at all
//   lost      the answer broke off
//   stopped   by the person
//   token     there is no token, or a wrong one
//   busy      the daemon cannot take the call now
//   refused   anything else; `message` is the daemon's
export class ApiError extends Error {
  constructor(kind, message, code = '') {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

const GONE = 'The daemon does not answer. Check that it runs and that this machine reaches it.';
const LOST = 'The connection broke before the answer was complete.';
const STOPPED = 'Stopped.';
const TOKEN_KEY = 'annulus.token';

let token = sessionStorage.getItem(TOKEN_KEY) || '';

export const hasToken = () => token !== '';

// Characters that a header can carry.
export const isToken = (text) => /^[\x21-\x7e]+$/.test(text);

export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(TOKEN_KEY, text);
  else sessionStorage.removeItem(TOKEN_KEY);
}

const headers = (more = {}) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

// The error in a body of OpenAI's or of Anthropic's form.
function errorOf(status, body) {
  let told = {};
  try {
    told = JSON.parse(body).error || {};
  } catch {
    // No JSON: something between the page and the daemon answered.
  }
  const message = told.message || `HTTP status ${status} without a reason.`;
  const kind = status === 401 ? 'token' : status === 429 || status >= 500 ? 'busy' : 'refused';
  return new ApiError(kind, message, told.code || told.type || '');
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options, headers: headers(options.headers) });
  } catch (error) {
    throw error.name === 'AbortError' ? new ApiError('stopped', STOPPED) : new ApiError('gone', GONE);
  }
  if (!response.ok) throw errorOf(response.status, await response.text().catch(() => ''));
  return response;
}

// Reads a body that may break off.
async function* partsOf(response) {
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw error.name === 'AbortError' ? new ApiError('stopped', STOPPED) : new ApiError('lost', LOST);
  }
}

export async function readModel() {
  return (await (await call('/v1/models')).json()).data[0];
}

// 'serving', 'loading', ... or '' if the daemon does not answer.
export async function readState() {
  try {
    return (await (await fetch('/health', { cache: 'no-store' })).json()).status;
  } catch {
    return '';
  }
}

export async function listFiles() {
  const files = [];
  for (let after = ''; ;) {
    const page = await (await call(`/v1/files?limit=1000${after && `&after=${encodeURIComponent(after)}`}`)).json();
    files.push(...page.data);
    if (!page.has_more) return files;
    after = page.last_id;
  }
}

export const deleteFile = (id) => call(`/v1/files/${encodeURIComponent(id)}`, { method: 'DELETE' });

// The bytes of a document: calls `take` with each part, in order.
export async function readFile(id, take, signal) {
  const response = await call(`/v1/files/${encodeURIComponent(id)}/content`, { signal });
  for await (const part of partsOf(response)) take(part);
}

// Uploads a file. `onProgress(sent, total)` counts bytes. Returns {done, stop}: the promise of the
// stored file, and a function that ends the upload.
export function upload(file, onProgress) {
  const request = new XMLHttpRequest();  // fetch tells nothing of what was sent
  const done = new Promise((resolve, reject) => {
    request.open('POST', '/v1/files');
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    request.onabort = () => reject(new ApiError('stopped', STOPPED));
    request.onerror = async () => {
      const state = await readState();
      reject(state === '' ? new ApiError('gone', GONE)
        : new ApiError('lost', 'The daemon ended the upload. The file may be larger than its --max-document-size.'));
    };
    request.onload = () => {
      if (request.status === 200) resolve(JSON.parse(request.responseText));
      else reject(errorOf(request.status, request.responseText));
    };
    const form = new FormData();
    form.append('purpose', 'user_data');
    form.append('file', file, file.name);
    request.send(form);
  });
  return { done, stop: () => request.abort() };
}

const postJson = (path, body, signal) => call(path, {
  method: 'POST', signal, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' },
});

export async function countTokens(messages, signal) {
  return (await (await postJson('/v1/messages/count_tokens', { messages }, signal)).json()).input_tokens;
}

// Cuts a stream of server-sent events into lines.
async function* linesOf(response) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const part of partsOf(response)) {
    const lines = (rest + decoder.decode(part, { stream: true })).split('\n');
    rest = lines.pop();
    yield* lines;
  }
}

const PROGRESS = ': annulus ';

// Asks for an answer. Calls `onProgress({processed, total, eta})` while the prompt is read (tokens,
// seconds), and `onEvent` with each event of the stream. Returns when the answer is complete.
export async function ask(body, { onEvent, onProgress, signal }) {
  const response = await postJson('/v1/messages', { ...body, stream: true }, signal);
  let complete = false;
  for await (const line of linesOf(response)) {
    if (line.startsWith(PROGRESS)) onProgress(JSON.parse(line.slice(PROGRESS.length)));
    if (!line.startsWith('data: ')) continue;
    const event = JSON.parse(line.slice('data: '.length));
    if (event.type === 'error') throw new ApiError('refused', event.error.message, event.error.type);
    complete ||= event.type === 'message_stop';
    onEvent(event);
  }
  if (!complete) throw new ApiError('lost', LOST);
}
