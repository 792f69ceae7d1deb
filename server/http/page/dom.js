// Small helpers for the page. Texts become text nodes only: nothing that the daemon or a document
// says is ever read as HTML.

export const by = (id) => document.getElementById(id);

// An element. `members` are properties; those that start with "data" or "aria" are attributes.
export function make(tag, members = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(members)) {
    if (/^(data|aria)-/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Tells people who do not see the page.
export function say(text) {
  by('said').textContent = text;
}

const numbers = new Intl.NumberFormat('en');

export const formatCount = (count) => numbers.format(count);

export const plural = (count, one, many = `${one}s`) => `${formatCount(count)} ${count === 1 ? one : many}`;

export function formatBytes(bytes) {
  if (bytes < 1024) return plural(bytes, 'byte');
  if (bytes < 1 << 20) return `${(bytes / 1024).toFixed(bytes < 10240 ? 1 : 0)} KiB`;
  return `${(bytes / (1 << 20)).toFixed(bytes < 10 << 20 ? 1 : 0)} MiB`;
}

export function formatSeconds(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// What this tab remembers across a reload. Without room nothing is remembered.
export function remember(key, value) {
  try {
    sessionStorage.setItem(`annulus.${key}`, JSON.stringify(value));
    return true;
  } catch {
    sessionStorage.removeItem(`annulus.${key}`);
    return false;
  }
}

export function recall(key, otherwise) {
  try {
    return JSON.parse(sessionStorage.getItem(`annulus.${key}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
