// The conversation: questions, answers as they come, their passages and what they cost.

import { ApiError, ask, countTokens } from './api.js';
import { by, formatCount, formatSeconds, make, plural, recall, remember, say } from './dom.js';

const FRAME_MS = 200;  // between two pictures of the progress

// A turn: {question, documents: [{id, name}], cites, blocks, usage, firstMs, allMs, state, fault}.
// `blocks`: [{kind: 'text'|'thinking', text, citations}]. `state`: running, done, stopped, failed.
const textOf = (turn) => turn.blocks.filter(({ kind }) => kind === 'text').map(({ text }) => text).join('');

// The messages of a request: the earlier turns that have an answer, then the new question. All
// documents are in the first message, where the model reads them once for all turns.
export function messagesOf(turns, question, documents, cites) {
  const messages = [];
  for (const turn of turns) {
    const text = textOf(turn).trimEnd();
    if (text) messages.push({ role: 'user', content: turn.question }, { role: 'assistant', content: text });
  }
  messages.push({ role: 'user', content: question });
  const blocks = documents.map(({ id }) => ({
    type: 'document', source: { type: 'file', file_id: id }, ...(cites && { citations: { enabled: true } }),
  }));
  messages[0] = { role: 'user', content: [...blocks, { type: 'text', text: messages[0].content }] };
  return messages;
}

// Numbers of the passages of a turn, in the order in which the answer names them.
function passagesOf(turn) {
  const passages = new Map();
  for (const { citations } of turn.blocks) {
    for (const citation of citations) {
      const key = keyOf(citation);
      if (!passages.has(key)) passages.set(key, { ...citation, key, number: passages.size + 1 });
    }
  }
  return passages;
}

const keyOf = ({ document_index: index, start_char_index: begin, end_char_index: end }) => `${index}.${begin}.${end}`;

// What an answer cost.
function costOf({ usage, firstMs, allMs }) {
  const cached = usage.cache_read_input_tokens ?? 0;
  const read = usage.input_tokens + cached;
  const facts = [
    cached ? `${plural(read, 'token')} of prompt: ${formatCount(cached)} from the cache, ${formatCount(read - cached)} read now`
      : `${plural(read, 'token')} of prompt, all read now`,
    `${formatCount(usage.output_tokens)} written`,
  ];
  if (firstMs) facts.push(`${formatSeconds(firstMs / 1000)} to the first word`);
  facts.push(`${formatSeconds(allMs / 1000)} in all`);
  return facts.join(' · ');
}

// The progress of a prompt between two reports, by the time that was said to be left.
class PromptProgress {
  constructor(bar, line) {
    this.bar = bar;
    this.line = line;
    this.start = performance.now();
    this.phase = 'waiting';
    this.timer = setInterval(() => this.show(), FRAME_MS);
    this.show();
  }

  report({ processed, total, eta }) {
    if (total <= 0) return;
    this.phase = 'reading';
    this.at = performance.now();
    Object.assign(this, { processed, total, eta });
    this.show();
  }

  write() {
    this.phase = 'writing';
    this.show();
  }

  end() {
    clearInterval(this.timer);
  }

  show() {
    const now = performance.now();
    const passed = formatSeconds((now - this.start) / 1000);
    if (this.phase !== 'reading') {
      this.bar.removeAttribute('value');
      this.line.textContent = this.phase === 'waiting' ? `Waiting for the model · ${passed}` : `Writing · ${passed}`;
      return;
    }
    const left = Math.max(0, this.eta - (now - this.at) / 1000);
    const share = this.eta > 0 ? 1 - left / this.eta : 0;
    const read = Math.floor(this.processed + (this.total - this.processed) * Math.min(share, 0.99));
    this.bar.max = this.total;
    this.bar.value = read;
    this.line.textContent = `Reading ${formatCount(read)} of ${plural(this.total, 'token')}`
      + (this.eta > 0 ? ` · about ${formatSeconds(Math.max(left, 1))} left` : '');
  }
}

// `documents()`: the chosen ones. `model()`: of the daemon. `onPassage(turn, key)`: a passage was
// clicked. `onError(error)`: a call failed. `onEnd()`: an answer ended.
export class Talk {
  constructor(uses) {
    Object.assign(this, uses);
    this.turns = recall('turns', []);
    this.running = null;
    for (const turn of this.turns) {
      if (turn.state === 'running') this.interrupt(turn);
      this.show(turn);
    }
    this.showFrame();
    by('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.running) this.running.abort();
      else this.send(by('question').value.trim());
    });
    by('question').addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.running) this.send(by('question').value.trim());
    });
    by('anew').addEventListener('click', () => this.clear());
  }

  interrupt(turn) {
    turn.state = 'failed';
    turn.fault = 'The page was loaded again before the answer was complete. What the model had read is still cached.';
  }

  clear() {
    this.running?.abort();
    for (const { element } of this.turns) element.remove();
    this.turns = [];
    this.save();
    this.showFrame();
    by('question').focus();
  }

  save() {
    const kept = this.turns.map(({ element, ...turn }) => turn);
    if (!remember('turns', kept)) say('This conversation is too long to outlive a reload of the page.');
  }

  showFrame() {
    by('welcome').hidden = this.turns.length > 0;
    by('anew').hidden = this.turns.length === 0;
    const send = by('send');
    send.textContent = this.running ? 'Stop' : 'Ask';
    send.classList.toggle('primary', !this.running);
  }

  async send(question) {
    if (!question) return by('question').focus();
    const documents = this.documents().map(({ id, filename }) => ({ id, name: filename }));
    const turn = { question, documents, cites: by('passages').checked && documents.length > 0, blocks: [], usage: null, state: 'running' };
    by('question').value = '';
    this.turns.push(turn);
    await this.run(turn);
  }

  // Asks the question of a turn that failed again, in its place.
  async again(turn, changes = {}) {
    if (this.running) return;
    Object.assign(turn, { blocks: [], usage: null, state: 'running', fault: '', firstMs: 0, ...changes });
    await this.run(turn);
  }

  async run(turn) {
    this.running = new AbortController();
    this.showFrame();
    this.show(turn);
    this.save();
    by('turns').scrollTop = by('turns').scrollHeight;
    const start = performance.now();
    const progress = new PromptProgress(turn.element.querySelector('progress'), turn.element.querySelector('.working span'));
    try {
      await this.fetchAnswer(turn, progress, start);
      turn.state = 'done';
      say(`The answer is complete. ${plural(passagesOf(turn).size, 'passage')}.`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      turn.state = error.kind === 'stopped' ? 'stopped' : 'failed';
      turn.fault = error.message;
      turn.refusesPassages = turn.cites && error.kind === 'refused' && /citations|evidence/.test(error.message);
      if (error.kind !== 'refused') this.onError(error);
    } finally {
      progress.end();
      turn.allMs = performance.now() - start;
      this.running = null;
      this.show(turn);
      this.save();
      this.showFrame();
      this.onEnd();
    }
  }

  async fetchAnswer(turn, progress, start) {
    const { signal } = this.running;
    const messages = messagesOf(this.turns.slice(0, this.turns.indexOf(turn)), turn.question, turn.documents, turn.cites);
    const tokens = await countTokens(messages, signal);
    const { max_model_len: most } = this.model();
    if (tokens >= most) {
      throw new ApiError('refused', `The documents and the conversation have ${formatCount(tokens)} tokens, and the model takes ${formatCount(most)} with its answer. `
        + 'Choose fewer documents, start a new conversation, or use "annulus ask", which reads long documents in parts.');
    }
    const body = { max_tokens: Math.min(Math.max(1, Math.floor(Number(by('longest').value)) || 512), most - tokens), messages };
    if (by('steady').checked) body.temperature = 0;
    await ask(body, {
      signal,
      onProgress: (report) => progress.report(report),
      onEvent: (event) => {
        if (event.type === 'content_block_delta' && !turn.firstMs) {
          turn.firstMs = performance.now() - start;
          progress.write();
        }
        this.take(turn, event);
      },
    });
  }

  take(turn, event) {
    if (event.type === 'message_start') turn.usage = event.message.usage;
    if (event.type === 'message_delta') {
      Object.assign(turn.usage, event.usage);
      turn.cut = event.delta.stop_reason === 'max_tokens';
    }
    if (event.type === 'content_block_start') {
      const { type, text = '', thinking = '', citations = [] } = event.content_block;
      turn.blocks[event.index] = { kind: type, text: text + thinking, citations: [...(citations ?? [])] };
      this.showAnswer(turn);
    }
    if (event.type !== 'content_block_delta') return;
    const block = turn.blocks[event.index];
    const { delta } = event;
    if (delta.type === 'citations_delta') block.citations.push(delta.citation);
    else block.text += delta.text ?? delta.thinking ?? '';
    this.showBlock(turn, event.index);
  }

  // Shows all of a turn, in its place.
  show(turn) {
    const element = make('article', { className: 'turn', 'aria-label': 'Question and answer', 'data-state': turn.state },
      make('p', { className: 'asked', textContent: turn.question }),
      turn.documents.length ? make('p', { className: 'asked-of', textContent: turn.documents.map(({ name }) => name).join(', ') }) : null,
      make('div', { className: 'thinking' }), make('div', { className: 'answer', 'aria-label': 'Answer' }));
    if (turn.state === 'running') {
      element.append(make('div', { className: 'working' }, make('progress', { 'aria-label': 'Progress of the answer' }), make('span')));
    }
    if (turn.element) turn.element.replaceWith(element);
    else by('turns').append(element);
    turn.element = element;
    this.showAnswer(turn);
    if (turn.state !== 'running') this.showEnd(turn);
  }

  showAnswer(turn) {
    turn.element.querySelector('.answer').replaceChildren();
    turn.element.querySelector('.thinking').replaceChildren();
    turn.blocks.forEach((_, index) => this.showBlock(turn, index));
  }

  showBlock(turn, index) {
    const box = by('turns');
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    const { kind, text, citations } = turn.blocks[index];
    const place = turn.element.querySelector(kind === 'thinking' ? '.thinking' : '.answer');
    let shown = place.querySelector(`[data-index="${index}"]`);
    if (!shown && kind === 'thinking') {
      shown = make('details', { className: 'thoughts', 'data-index': index }, make('summary', { textContent: 'Thoughts' }), make('p'));
      place.append(shown);
    } else if (!shown) {
      shown = make('span', { 'data-index': index }, document.createTextNode(''));
      place.append(shown);
    }
    if (kind === 'thinking') {
      shown.lastChild.textContent = text;
    } else if (citations.length === 0) {
      shown.firstChild.data = text;
    } else {
      this.showCited(turn, shown, text, citations);
    }
    if (follows) box.scrollTop = box.scrollHeight;
  }

  // The numbers stand behind the last letter, before the blanks that end a sentence.
  showCited(turn, shown, text, citations) {
    const words = text.trimEnd();
    const passages = passagesOf(turn);
    const keys = [...new Set(citations.map(keyOf))];
    const cites = keys.map((key) => this.cite(turn, passages.get(key)));
    shown.replaceChildren(make('span', { className: 'cited' }, words, ...cites), text.slice(words.length));
  }

  cite(turn, passage) {
    const { name } = turn.documents[passage.document_index];
    const button = make('button', {
      type: 'button', className: 'cite', textContent: passage.number, 'data-key': passage.key,
      'aria-label': `Passage ${passage.number}, in ${name}`, title: passage.cited_text.slice(0, 300),
    });
    button.addEventListener('click', () => this.onPassage(turn, passage.key, button));
    return button;
  }

  showEnd(turn) {
    const { element } = turn;
    const passages = [...passagesOf(turn).values()];
    if (passages.length) {
      element.append(make('p', { className: 'passages-title', textContent: 'Passages that the model attended most: attention, not proof' }),
        make('ol', { className: 'passages', 'aria-label': 'Passages' }, ...passages.map((passage) => make('li', {}, this.passageButton(turn, passage)))));
    } else if (turn.cites && turn.state === 'done') {
      element.append(make('p', { className: 'passages-title', textContent: 'No passage stands out. The answer may rest on many, or on none.' }));
    }
    if (turn.state === 'done' && turn.cut) element.append(make('p', { className: 'cost', textContent: 'The answer ends at the longest length: see Options.' }));
    if (turn.state === 'stopped') element.append(make('p', { className: 'cost', textContent: 'Stopped. What the model has read stays cached.' }));
    if (turn.usage && turn.state === 'done') element.append(make('p', { className: 'cost', textContent: costOf(turn) }));
    if (turn.state === 'failed') element.append(this.fault(turn));
  }

  passageButton(turn, passage) {
    const { name } = turn.documents[passage.document_index];
    // The title goes on with the mark, such as a page, if the document has marks.
    const title = passage.document_title ?? name;
    const where = title.length > name.length ? title : `${name}, from character ${formatCount(passage.start_char_index)}`;
    const button = make('button', { type: 'button', className: 'passage', 'data-key': passage.key },
      make('b', { textContent: passage.number }), make('span', { className: 'where', textContent: where }),
      make('span', { className: 'what', textContent: passage.cited_text.trim() }));
    button.addEventListener('click', () => this.onPassage(turn, passage.key, button));
    return button;
  }

  fault(turn) {
    const again = make('button', { type: 'button', textContent: 'Ask again', 'data-role': 'again' });
    again.addEventListener('click', () => this.again(turn));
    const acts = make('div', { className: 'fault-acts' }, again);
    if (turn.refusesPassages) {
      const without = make('button', { type: 'button', textContent: 'Ask without passages' });
      without.addEventListener('click', () => this.again(turn, { cites: false }));
      acts.append(without);
    }
    return make('div', { className: 'fault', role: 'alert' }, make('p', { textContent: turn.fault }), acts);
  }

  // Shows which passage is open.
  markOpen(turn, key) {
    for (const button of by('turns').querySelectorAll('.cite, .passage')) {
      const open = turn !== null && button.dataset.key === key && turn.element.contains(button);
      if (open) button.setAttribute('aria-current', 'true');
      else button.removeAttribute('aria-current');
    }
  }

  passagesOf(turn) {
    return [...passagesOf(turn).values()];
  }
}
