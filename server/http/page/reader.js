// Shows the text of one document, however long, with passages marked.
//
// The text is cut into pieces of some KiB. A piece is an empty box of about its height until it
// comes near to what is seen, so that a text of many MiB costs as much as a short one. Texts beyond
// one part are shown part by part, since browsers limit how tall a box may be.

const PIECE_BYTES = 6 << 10;        // at least, if the text goes on
const LONGEST_PIECE_BYTES = 12 << 10;  // where no line ends
const PART_PIECES = 2048;
const PIECE_HEIGHT = 2200;          // px, before one has been measured
const NEAR = 1500;                  // px around what is seen

const isInside = (byte) => (byte & 0xc0) === 0x80;  // of a character in UTF-8

// A document's bytes, with the places of its characters (code points).
export class DocumentText {
  constructor(expected) {
    this.bytes = new Uint8Array(Math.max(expected, 1));
    this.size = 0;
    this.starts = [0];      // of pieces, in bytes
    this.characters = [0];  // the same in characters
    this.counted = 0;       // characters in all
    this.lineEnd = -1;      // the newest place to cut at
    this.lineEndCharacters = 0;
    this.decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  }

  add(part) {
    if (this.size + part.length > this.bytes.length) {
      const larger = new Uint8Array(2 * (this.size + part.length));
      larger.set(this.bytes.subarray(0, this.size));
      this.bytes = larger;
    }
    this.bytes.set(part, this.size);
    for (let i = 0; i < part.length; ++i) {
      const byte = part[i];
      if (!isInside(byte)) this.beginCharacter();
      ++this.size;
      if (byte === 0x0a) {
        this.lineEnd = this.size;
        this.lineEndCharacters = this.counted;
      }
    }
  }

  // Counts the character that begins at `size`, and cuts before it if the piece is long enough.
  beginCharacter() {
    const start = this.starts[this.starts.length - 1];
    if (this.lineEnd === this.size && this.size - start >= PIECE_BYTES) {
      this.cut(this.size, this.counted);
    } else if (this.size - start >= LONGEST_PIECE_BYTES) {
      if (this.lineEnd > start) this.cut(this.lineEnd, this.lineEndCharacters);
      else this.cut(this.size, this.counted);
    }
    ++this.counted;
  }

  cut(byte, character) {
    this.starts.push(byte);
    this.characters.push(character);
  }

  get pieces() {
    return this.starts.length;
  }

  textOf(piece) {
    return this.decoder.decode(this.bytes.subarray(this.starts[piece], this.starts[piece + 1] ?? this.size));
  }

  endOf(piece) {
    return this.characters[piece + 1] ?? this.counted;
  }

  // The piece that has this character.
  pieceAt(character) {
    let low = 0;
    let high = this.pieces - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.characters[middle] <= character) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

// Index in UTF-16 of the code point `count` of the text.
function indexOf(text, count) {
  let index = 0;
  for (let left = count; left > 0 && index < text.length; --left) {
    index += text.codePointAt(index) > 0xffff ? 2 : 1;
  }
  return index;
}

// Parts of a piece's text: [{text, range}], where `range` is null outside of the ranges. Of
// characters in several ranges the last one has them.
export function cutAtRanges(text, begin, end, ranges) {
  const inside = ranges.filter((range) => range.begin < end && range.end > begin);
  const cuts = new Set([begin, end]);
  for (const range of inside) {
    cuts.add(Math.max(range.begin, begin));
    cuts.add(Math.min(range.end, end));
  }
  const places = [...cuts].sort((a, b) => a - b);
  const parts = [];
  let from = 0;
  for (let i = 0; i + 1 < places.length; ++i) {
    const length = indexOf(text.slice(from), places[i + 1] - places[i]);
    const range = inside.filter((one) => one.begin <= places[i] && one.end >= places[i + 1]).pop() ?? null;
    parts.push({ text: text.slice(from, from + length), range });
    from += length;
  }
  return parts;
}

// `sheet`: the element that scrolls. `onPart(part, parts)` is called when another part is shown.
export class DocumentView {
  constructor(sheet, onPart) {
    this.sheet = sheet;
    this.onPart = onPart;
    this.observer = new IntersectionObserver((seen) => this.onSeen(seen), { root: sheet, rootMargin: `${NEAR}px 0px` });
    this.close();
  }

  close() {
    this.observer.disconnect();
    this.sheet.replaceChildren();
    this.text = null;
    this.ranges = [];
    this.part = -1;
    this.boxes = [];
    this.height = PIECE_HEIGHT;
  }

  open(text) {
    this.close();
    this.text = text;
    this.showPart(0);
  }

  get parts() {
    return this.text ? Math.ceil(this.text.pieces / PART_PIECES) : 0;
  }

  showPart(part) {
    this.observer.disconnect();
    this.part = part;
    const first = part * PART_PIECES;
    const count = Math.min(PART_PIECES, this.text.pieces - first);
    this.boxes = Array.from({ length: count }, (_, i) => {
      const box = document.createElement('div');
      box.className = 'piece';
      box.dataset.piece = first + i;
      box.style.minHeight = `${this.height}px`;
      return box;
    });
    this.sheet.replaceChildren(...this.boxes);
    this.sheet.scrollTop = 0;
    this.fill(this.boxes[0]);
    for (const box of this.boxes) this.observer.observe(box);
    this.onPart(part, this.parts);
  }

  onSeen(entries) {
    for (const entry of entries) {
      if (entry.isIntersecting) this.fill(entry.target);
      else this.empty(entry.target);
    }
  }

  fill(box) {
    if (box.firstChild) return;
    const piece = Number(box.dataset.piece);
    const parts = cutAtRanges(this.text.textOf(piece), this.text.characters[piece], this.text.endOf(piece), this.ranges);
    for (const { text, range } of parts) {
      if (!range) {
        box.append(text);
        continue;
      }
      const mark = document.createElement('mark');
      mark.textContent = text;
      mark.tabIndex = -1;
      mark.dataset.key = range.key;
      if (range.key === this.current) mark.classList.add('now');
      box.append(mark);
    }
    box.style.minHeight = '';
  }

  empty(box) {
    if (!box.firstChild) return;
    const { height } = box.getBoundingClientRect();
    box.replaceChildren();
    box.style.minHeight = `${height}px`;
    this.height = height;
  }

  // Marks these passages: [{key, begin, end}] in characters.
  mark(ranges) {
    this.ranges = ranges;
    this.current = null;
    for (const box of this.boxes) {
      if (!box.firstChild) continue;
      box.replaceChildren();
      this.fill(box);
    }
  }

  // Brings the passage with this key into sight and puts the focus on it.
  goTo(key) {
    const range = this.ranges.find((one) => one.key === key);
    this.current = key;
    const piece = this.text.pieceAt(range.begin);
    const part = Math.floor(piece / PART_PIECES);
    if (part !== this.part) this.showPart(part);
    const at = piece - part * PART_PIECES;
    // What stands around it must have its height, or the passage would move away.
    for (const box of this.boxes.slice(Math.max(0, at - 2), at + 3)) this.fill(box);
    for (const mark of this.sheet.querySelectorAll('mark')) mark.classList.toggle('now', mark.dataset.key === key);
    const mark = this.boxes[at].querySelector(`mark[data-key="${CSS.escape(key)}"]`);
    if (!mark) return;
    mark.scrollIntoView({ block: 'center' });
    mark.focus({ preventScroll: true });
  }
}
