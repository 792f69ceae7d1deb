// The panel of documents: what is stored, what is chosen, and uploads.

import { deleteFile, listFiles, upload } from './api.js';
import { by, formatBytes, make, plural, recall, remember, say } from './dom.js';

const FILTER_FROM = 9;  // documents
const HEAD_BYTES = 1024;

// Kinds of files that are no text: what a file begins with, and what people call it.
const KINDS = [
  { magic: [0x25, 0x50, 0x44, 0x46, 0x2d], name: 'a PDF' },
  { magic: [0x50, 0x4b, 0x03, 0x04], name: 'an office file, a book or an archive' },
  { magic: [0xd0, 0xcf, 0x11, 0xe0], name: 'an old office file' },
  { magic: [0x1f, 0x8b], name: 'a compressed file' },
  { magic: [0x89, 0x50, 0x4e, 0x47], name: 'a picture' },
  { magic: [0xff, 0xd8, 0xff], name: 'a picture' },
];

// Why a file cannot be uploaded from here; empty if it may be text.
async function refusalOf(file) {
  if (file.size === 0) return `${file.name} is empty.`;
  const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  const kind = KINDS.find(({ magic }) => magic.every((byte, i) => head[i] === byte));
  if (!kind && !head.includes(0)) return '';
  return `${file.name} is ${kind ? kind.name : 'not text'}. Convert and add it with: annulus documents put ${quoted(file.name)}`;
}

const quoted = (name) => (/^[\w.,+@%/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);

// What is known of a stored document, in one line.
function factsOf(file) {
  const facts = [formatBytes(file.bytes)];
  const { tokens, memory_tokens: inMemory, disk_tokens: onDisk, pinned } = file.annulus ?? {};
  if (tokens) facts.push(plural(tokens, 'token'));
  const cached = Math.min(tokens, Math.max(inMemory, onDisk));
  if (cached > 0) facts.push(`${Math.max(1, Math.floor((100 * cached) / tokens))}% cached${inMemory >= onDisk ? '' : ' on disk'}`);
  if (pinned) facts.push('pinned');
  return facts.join(' · ');
}

// `onChange()`: another choice. `onOpen(file)`: its text is asked for. `onError(error)`: a call failed.
export class Files {
  constructor({ onChange, onOpen, onError }) {
    this.onChange = onChange;
    this.onOpen = onOpen;
    this.onError = onError;
    this.files = [];
    this.rows = new Map();  // elements of files, by id
    this.chosen = new Set(recall('chosen', []));
    this.local = new Map();  // files that were added in this tab, by id
    by('pick').addEventListener('change', (event) => {
      this.add([...event.target.files]);
      event.target.value = '';
    });
    by('filter').addEventListener('input', () => this.show());
  }

  get chosenFiles() {
    return this.files.filter(({ id }) => this.chosen.has(id));
  }

  async load() {
    this.files = await listFiles();
    const known = new Set(this.files.map(({ id }) => id));
    this.chosen = new Set([...this.chosen].filter((id) => known.has(id)));
    this.show();
    this.onChange();
  }

  choose(id, on) {
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    remember('chosen', [...this.chosen]);
    this.onChange();
  }

  show() {
    const word = by('filter').value.trim().toLowerCase();
    const shown = this.files.filter(({ filename }) => filename.toLowerCase().includes(word));
    by('filter').closest('label').hidden = this.files.length < FILTER_FROM;
    by('files-empty').hidden = this.files.length > 0;
    // Rows stay the same elements, so that a click or the focus on one outlives a new list.
    const list = by('file-list');
    shown.forEach((file, i) => {
      const row = this.rowOf(file);
      if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
    });
    while (list.children.length > shown.length) list.lastChild.remove();
  }

  rowOf(file) {
    if (!this.rows.has(file.id)) this.rows.set(file.id, this.makeRow(file));
    const row = this.rows.get(file.id);
    row.querySelector('input').checked = this.chosen.has(file.id);
    row.querySelector('small').textContent = factsOf(file);
    return row;
  }

  makeRow(file) {
    const box = make('input', { type: 'checkbox', id: `choose-${file.id}` });
    box.addEventListener('change', () => this.choose(file.id, box.checked));
    const read = make('button', { type: 'button', textContent: 'Read', 'aria-label': `Read ${file.filename}`, 'data-role': 'read' });
    read.addEventListener('click', () => this.onOpen(file));
    const away = make('button', { type: 'button', textContent: 'Delete', 'aria-label': `Delete ${file.filename}`, 'data-role': 'delete' });
    away.addEventListener('click', () => this.deleteSurely(file, away));
    away.addEventListener('blur', () => {
      away.textContent = 'Delete';
      away.classList.remove('sure');
    });
    return make('li', { className: 'file', 'data-id': file.id }, box, make('label', { htmlFor: box.id, textContent: file.filename }),
      make('span', { className: 'file-acts' }, read, away), make('small'));
  }

  // The first click asks, the second deletes.
  async deleteSurely(file, button) {
    if (!button.classList.contains('sure')) {
      button.classList.add('sure');
      button.textContent = 'Really?';
      say(`Press again to delete ${file.filename}.`);
      return;
    }
    button.disabled = true;
    try {
      await deleteFile(file.id);
      say(`${file.filename} is deleted.`);
      await this.load();
    } catch (error) {
      button.disabled = false;
      this.onError(error);
    }
  }

  async add(files) {
    for (const file of files) await this.addOne(file);
  }

  async addOne(file) {
    const bar = make('progress', { max: 1, value: 0, 'aria-label': `Upload of ${file.name}` });
    const note = make('span', { className: 'problem', hidden: true });
    const button = make('button', { type: 'button', textContent: 'Stop', 'aria-label': `Stop the upload of ${file.name}` });
    const row = make('li', { className: 'upload', 'data-name': file.name },
      make('div', { className: 'upload-head' }, make('span', { textContent: file.name }), button), bar, note);
    by('uploads').append(row);
    const fail = (text) => {
      bar.hidden = true;
      note.hidden = false;
      note.textContent = text;
      button.textContent = 'Dismiss';
      button.setAttribute('aria-label', `Dismiss the note about ${file.name}`);
      button.onclick = () => row.remove();
      say(text);
    };
    const refusal = await refusalOf(file);
    if (refusal) return fail(refusal);
    const { done, stop } = upload(file, (sent, total) => { bar.value = sent / total; });
    button.onclick = stop;
    try {
      const stored = await done;
      this.local.set(stored.id, file);
      this.chosen.add(stored.id);
      remember('chosen', [...this.chosen]);
      row.remove();
      say(`${file.name} is stored and chosen.`);
      await this.load();
    } catch (error) {
      fail(error.kind === 'stopped' ? `The upload of ${file.name} was stopped.` : error.message);
      if (error.kind === 'token' || error.kind === 'gone') this.onError(error);
    }
  }
}
