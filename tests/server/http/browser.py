"""A headless Chromium for tests, by the WebDriver protocol (W3C) of Debian's packages chromium and chromium-driver."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, by the standard
ENTER, TAB, ESCAPE, SPACE, SHIFT = "\ue007", "\ue004", "\ue00c", " ", "\ue008"
# Looks every 20 ms whether the expression is true, in the page, and returns its value.
WAIT = """
const [expression, bound, done] = arguments, test = new Function('return (' + expression + ')');
const end = performance.now() + bound;
(function look() {
  let value = null;
  try { value = test(); } catch (error) { value = null; }
  if (value || performance.now() > end) done(value || null); else setTimeout(look, 20);
})();
"""


def is_here():
    return all(shutil.which(program) for program in ("chromium", "chromedriver"))


class Browser:
    """One window. All waits are bounded; what does not come in time raises AssertionError."""

    def __init__(self, width=1360, height=860, scheme="light"):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            started = re.search(r"successfully on port (\d+)", line)
            if started:
                break
        else:
            raise AssertionError("chromedriver did not start")
        self.root = f"http://127.0.0.1:{started[1]}"
        # Tests run as root in containers, where Chromium's own sandbox cannot start.
        options = {"binary": shutil.which("chromium"), "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 300_000, "pageLoad": 60_000}}}})
        self.root += f"/session/{made['sessionId']}"
        self.resize(width, height)
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()

    def _call(self, method, path, body=None):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=330) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise AssertionError(f"{path}: {value['error']}: {value['message'].splitlines()[0]}") from None

    def _devtools(self, command, **parameters):
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        self._call("POST", "/url", {"url": url})

    def reload(self):
        self._call("POST", "/refresh")

    def run(self, script, *arguments):
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, expression, seconds=60):
        """Returns the value of the JavaScript expression once it is true."""
        value = self._call("POST", "/execute/async", {"script": WAIT, "args": [expression, seconds * 1000]})
        if not value:
            raise AssertionError(f"not within {seconds} s: {expression}")
        return value

    def find(self, selector):
        return self._call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self._call("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        """Into a field; into a field for files the paths, one a line."""
        self._call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys):
        """Keys for whatever has the focus; SHIFT holds for the next key."""
        actions, held = [], False
        for key in keys:
            actions.append({"type": "keyDown", "value": key})
            if key == SHIFT:
                held = True
                continue
            actions.append({"type": "keyUp", "value": key})
            if held:
                actions.append({"type": "keyUp", "value": SHIFT})
                held = False
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def complaints(self):
        """What the console got since the last call, but for requests that failed."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["source"] != "network"]
