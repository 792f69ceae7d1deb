#!/usr/bin/env python3
"""page_test.py BUILD [PICTURES]: the page that annulusd serves with --http, by real clicks and keys in headless Chromium:
token, upload, progress, answer, passages, stop, reload, a daemon that is gone, 400 px, dark, keyboard alone, a document
of many MiB, and names and texts that look like HTML. With PICTURES it writes pictures into that folder.

Skipped (77) if Debian's packages chromium and chromium-driver are not installed.
"""

import contextlib
import pathlib
import random
import re
import sys
import tempfile
import threading
import time
import urllib.request

import browser
from browser import ENTER, ESCAPE, SHIFT, SPACE, TAB, Browser
from clients_test import Daemon, check, skip

TOKEN = "s3cret-token"
FACT = "The pass key of Brun is 71533.\n"
CUE = "The pass key of Brun is"
WORDS = "the of and river stone light over under castle north winter ship road bell green quiet field".split()
HOSTILE = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
READY = "document.querySelector('#link').dataset.state === 'up'"
LAST = "[...document.querySelectorAll('.turn')].pop()"
pictures = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None


def text_of(size, *facts):
    """Sentences without meaning; each of (share, text) stands at this share of the document."""
    draw, lines, length = random.Random(5), [], 0
    while length < size:
        lines.append(" ".join(draw.choices(WORDS, k=12)).capitalize() + ".\n")
        length += len(lines[-1])
    for share, fact in facts:
        lines.insert(int(len(lines) * share), fact)
    return "".join(lines)


def start(build, folder, *flags, port=0):
    daemon = Daemon(build, "builtin:recall", "--documents", str(folder / "documents"), "--http-heartbeat", "200ms",
                    *flags, port=port)
    threading.Thread(target=daemon.process.stderr.read, daemon=True).start()  # or its log fills the pipe
    return daemon


def page_of(daemon):
    return f"http://localhost:{daemon.port}/"


def visit(window, daemon):
    """Opens the page, and asks for answers no longer than the fact: the recall model goes on with what follows it."""
    window.open(page_of(daemon))
    window.wait(READY)
    window.click(".options summary")
    window.run("document.querySelector('#longest').value = ''")
    window.type("#longest", "7")
    window.click(".options summary")


def picture(window, name):
    if pictures:
        window.picture(pictures / f"{name}.png")


def add(window, *paths):
    """Uploads files by the field for them, and waits until they are stored."""
    before = window.run("return document.querySelectorAll('.file').length")
    window.type("#pick", "\n".join(map(str, paths)))
    window.wait(f"document.querySelectorAll('.file').length === {before + len(paths)} && !document.querySelector('.upload')")


def choose_only(window, name):
    window.run("""for (const file of document.querySelectorAll('.file')) {
        const box = file.querySelector('input');
        if (box.checked !== (file.querySelector('label').textContent === arguments[0])) box.click();
    }""", name)


def ask(window, question):
    window.type("#question", question + ENTER)


def ended(window, state="done", seconds=180):
    window.wait(f"{LAST}.dataset.state !== 'running'", seconds)
    turn = window.run(f"const turn = {LAST}; return {{state: turn.dataset.state, text: turn.innerText}}")
    check(turn["state"] == state, f"the answer is {turn['state']}, not {state}: {turn['text']}")
    return turn["text"]


def running(daemon):
    with urllib.request.urlopen(daemon.metrics, timeout=20) as answer:
        return float(re.search(r"^\w+_requests_running(?:{.*})? (\S+)$", answer.read().decode(), re.M)[1])


def tokens(build, folder):
    token_file = folder / "token"
    token_file.write_text(TOKEN + "\n")
    with start(build, folder, "--auth-token-file", str(token_file)) as daemon, Browser() as window:
        window.open(page_of(daemon))
        window.wait("document.querySelector('#token-dialog').open")
        picture(window, "token")
        window.type("#token", "wrong" + ENTER)
        window.wait("document.querySelector('#token-error').textContent.includes('not accepted')")
        window.type("#token", "not a token" + ENTER)
        window.wait("document.querySelector('#token-error').textContent.includes('without blanks')")
        window.run("document.querySelector('#token').value = ''")
        window.type("#token", TOKEN + ENTER)
        window.wait(READY)
        check(not window.run("return document.querySelector('#token-dialog').open"), "the dialog stays")
        kept = window.run("return [localStorage.length, document.cookie, location.href, sessionStorage.getItem('annulus.token')]")
        check(kept == [0, "", page_of(daemon), TOKEN], f"the token is kept elsewhere: {kept}")
        window.reload()
        window.wait(READY)
        check(not window.complaints(), "the console has errors")


def answers(daemon, window, folder):
    """Uploads, asks by keys, follows a passage, asks again."""
    (folder / "facts.txt").write_text(text_of(9000, (.5, FACT)))
    (folder / "report.pdf").write_bytes(b"%PDF-1.7\n%\xe2\xe3")
    visit(window, daemon)
    add(window, folder / "facts.txt")
    check("tokens" in window.text(".file small"), "the document's tokens are not told")
    window.type("#pick", str(folder / "report.pdf"))
    told = window.wait("document.querySelector('.upload .problem:not([hidden])')?.textContent")
    check("annulus documents put report.pdf" in told, f"a PDF: {told}")
    window.click(".upload button")
    window.wait("document.querySelector('#scope').textContent.includes('tokens')")
    picture(window, "chosen")
    ask(window, CUE)
    text = ended(window)
    check("71533" in text, f"the answer lacks the fact: {text}")
    check("all read now" in text and "to the first word" in text, f"the cost: {text}")
    follow_passage(window)
    ask(window, "The pass key of Brun is")
    text = ended(window)
    check("from the cache" in text, f"the second question: {text}")
    check(re.search(r"\d+% cached", window.text(".file small")), window.text(".file small"))


def follow_passage(window, name="passage"):
    check(window.run(f"return {LAST}.querySelectorAll('.cite').length") > 0, "no passage is named")
    window.click(".turn:last-child .cite")
    window.wait("document.querySelector('#sheet mark.now')")
    marked = window.text("#sheet mark.now")
    check("71533" in marked, f"the passage is {marked!r}")
    seen = window.run("""const mark = document.querySelector('#sheet mark.now').getBoundingClientRect();
        const sheet = document.querySelector('#sheet').getBoundingClientRect();
        return mark.bottom > sheet.top && mark.top < sheet.bottom""")
    check(seen, "the passage is out of sight")
    picture(window, name)
    window.press(ESCAPE)
    check(window.run("return document.activeElement.className") == "cite", "the focus does not return to the answer")


def stops_and_reloads(daemon, window, folder):
    (folder / "long.txt").write_text(text_of(600_000, (.5, FACT)))
    add(window, folder / "long.txt")
    choose_only(window, "long.txt")
    ask(window, CUE)
    line = window.wait(f"{LAST}.querySelector('progress')?.value > 0 && document.querySelector('.working span').textContent")
    check(re.search(r"Reading [\d,]+ of [\d,]+ tokens · about .* left", line), f"progress: {line}")
    picture(window, "progress")
    check(running(daemon) == 1, "nothing runs")
    window.click("#send")
    check("Stopped" in ended(window, "stopped"), "it does not say so")
    end = time.monotonic() + 30
    while running(daemon) > 0:
        check(time.monotonic() < end, "the daemon goes on")
    ask(window, CUE)
    window.wait(f"{LAST}.querySelector('progress')?.value > 0")
    asked = [window.run("return [...document.querySelectorAll('.asked')].map((asked) => asked.textContent)")]
    window.reload()
    window.wait(READY)
    check("loaded again" in ended(window, "failed"), "a reload is not told")
    asked.append(window.run("return [...document.querySelectorAll('.asked')].map((asked) => asked.textContent)"))
    check(len(asked[0]) > 1 and asked[0] == asked[1], f"the conversation is lost: {asked}")
    check(window.run("return [...document.querySelectorAll('.file input:checked')].length") == 1, "the choice is lost")


def daemon_gone(build, daemon, window, folder):
    """Killed while it reads, and started again at the same address."""
    choose_only(window, "facts.txt")
    window.click("#anew")
    choose_only(window, "long.txt")
    ask(window, CUE)
    window.wait(f"{LAST}.querySelector('progress')?.value > 0")
    daemon.kill()
    window.wait("!document.querySelector('#banner').hidden")
    check("does not answer" in window.text("#banner"), window.text("#banner"))
    ended(window, "failed")
    picture(window, "gone")
    with start(build, folder, port=daemon.port):
        window.wait(f"{READY} && document.querySelector('#banner').hidden")
        choose_only(window, "facts.txt")
        window.click("#anew")
        ask(window, CUE)
        check("71533" in ended(window), "no answer from the new daemon")


def hostile(daemon, window, folder):
    """Names and texts are texts."""
    name = "<img src=x onerror=window.hit=1>.txt"
    (folder / name).write_text(f"{HOSTILE} is the name.\n" + text_of(500))
    visit(window, daemon)
    add(window, folder / name)
    choose_only(window, name)
    window.click("#anew")
    ask(window, HOSTILE)
    ended(window)
    window.click(f".file:has(input:checked) [data-role=read]")
    window.wait("document.querySelector('#sheet').textContent.includes('<script>')")
    check(window.run("return window.hit === undefined && !document.querySelector('.panes img, .panes script')"), "a text became HTML")


def dropped(window):
    """A file that is dropped on the page; only a person's hand can drag one in, so the page gets the event."""
    window.run("""const data = new DataTransfer();
        data.items.add(new File(['It rains in Brun.'], 'dropped.txt', {type: 'text/plain'}));
        document.body.dispatchEvent(new DragEvent('dragenter', {dataTransfer: data, bubbles: true}));
        document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))""")
    window.wait("[...document.querySelectorAll('.file label')].some((name) => name.textContent === 'dropped.txt')")
    check(window.run("return document.querySelector('#drop').hidden"), "the target of the drop stays")


def large(window, folder):
    """14 MiB open within seconds, in few elements; a place near the end is reached."""
    (folder / "large.txt").write_text(text_of(14 << 20, (1, "The very last fact.\n")))
    add(window, folder / "large.txt")
    choose_only(window, "large.txt")
    window.click(".file:has(input:checked) [data-role=read]")
    window.wait("!document.querySelector('#parts').hidden", 30)
    held = window.run("return document.querySelector('#sheet').textContent.length")
    check(0 < held < 200_000, f"{held} characters are in the page at once")
    window.click("#part-after")
    window.run("const sheet = document.querySelector('#sheet'); sheet.scrollTop = sheet.scrollHeight")
    window.wait("document.querySelector('#sheet').textContent.includes('The very last fact.')")
    held = window.run("return document.querySelector('#sheet').textContent.length")
    check(held < 200_000, f"{held} characters are in the page at once")
    window.press(ESCAPE)


def fits(window, what):
    wide = window.run("""return [...document.querySelectorAll('body *')].filter((element) => element.checkVisibility()
        && !element.closest('.unseen, .skip') && element.getBoundingClientRect().right > innerWidth + 1)
        .map((element) => element.tagName + '.' + element.className).slice(0, 5)""")
    check(not wide, f"{what}: wider than the window: {wide}")


def narrow(daemon, folder):
    with Browser(400, 800) as window:
        visit(window, daemon)
        fits(window, "conversation")
        picture(window, "narrow-welcome")
        window.click(".tabs [data-pane=files]")
        fits(window, "documents")
        choose_only(window, "facts.txt")
        picture(window, "narrow-documents")
        window.click(".tabs [data-pane=talk]")
        ask(window, CUE)
        ended(window)
        fits(window, "answer")
        picture(window, "narrow-answer")
        follow_passage(window, "narrow-passage")
        check(window.run("return document.body.dataset.pane") == "talk", "the answer does not come back")
        window.resize(900, 700)
        fits(window, "two panes")
        picture(window, "middle")


CONTRAST = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => (v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4));
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
return [...document.querySelectorAll('body *')].filter((element) => element.checkVisibility() && !element.disabled
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((element) => {
  const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
  return [(a + .05) / (b + .05), element.tagName + '.' + element.className + ': ' + element.textContent.slice(0, 30)];
}).filter(([ratio]) => ratio < 4.5);
"""


def schemes(daemon):
    """Both colour schemes can be read: WCAG's contrast of 4.5 for every text."""
    for scheme in ("light", "dark"):
        with Browser(scheme=scheme) as window:
            visit(window, daemon)
            is_dark = window.run("return Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]) < 80")
            check(is_dark == (scheme == "dark"), f"{scheme}: another background")
            choose_only(window, "facts.txt")
            ask(window, CUE)
            ended(window)
            follow_passage(window)
            window.click(".turn:last-child .cite")
            window.wait("document.querySelector('#sheet mark.now')")
            check(not (faint := window.run(CONTRAST)), f"{scheme}: hard to read: {faint}")
            picture(window, scheme)


def focused(window):
    return window.run("""const at = document.activeElement, style = getComputedStyle(at);
        return {id: at.id, name: at.className, label: at.labels?.[0]?.textContent ?? '', seen: style.outlineStyle !== 'none'}""")


def tab_to(window, wanted, back=False):
    for _ in range(60):
        window.press(*((SHIFT, TAB) if back else (TAB,)))
        at = focused(window)
        if wanted(at):
            check(at["seen"], f"the focus on {at} is not seen")
            return
    check(False, "the keyboard does not reach it")


def keyboard(daemon):
    with Browser() as window:
        visit(window, daemon)
        tab_to(window, lambda at: at["label"] == "facts.txt")
        window.press(SPACE)
        tab_to(window, lambda at: at["id"] == "question")
        window.press(*CUE)
        window.press(SHIFT, ENTER)
        check(window.run("return document.querySelector('#question').value") == CUE + "\n", "no new line")
        window.press(ENTER)
        ended(window)
        tab_to(window, lambda at: at["name"] == "cite", back=True)
        window.press(ENTER)
        window.wait("document.querySelector('#sheet mark.now')")
        check("71533" in window.text("#sheet mark.now"), "another passage")
        window.press(ESCAPE)
        check(focused(window)["name"] == "cite", "the focus does not return")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not browser.is_here():
        skip("Debian's packages chromium and chromium-driver are not installed")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        (folder / "documents").mkdir(mode=0o700)
        tokens(build, folder)
        daemon = stack.enter_context(start(build, folder))
        window = stack.enter_context(Browser())
        answers(daemon, window, folder)
        dropped(window)
        hostile(daemon, window, folder)
        large(window, folder)
        stops_and_reloads(daemon, window, folder)
        schemes(daemon)
        narrow(daemon, folder)
        keyboard(daemon)
        daemon_gone(build, daemon, window, folder)
        check(not (complaints := window.complaints()), f"the console has errors: {complaints}")
    print("page_test: token, upload, progress, answer, passage, stop, reload, daemon gone, 400 px, dark and keyboard")


main()
