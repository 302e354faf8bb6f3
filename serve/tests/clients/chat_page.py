"""Runs `siskin serve` and uses its chat page in a headless Chromium, as people do.

    python chat_page.py SISKIN SMOLLM2 [--screenshots DIR]

With `--screenshots`, only writes pictures of the page to DIR.
"""

import json
import re
import sys
import time
import urllib.request
from pathlib import Path

from page_stub import Stub, answer
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from siskin_server import Server

SISKIN, DECODER = sys.argv[1:3]
QUESTION = "Why is the sky blue?"

# Records what a page does that must not happen, and what a screen reader would say.
RECORDER = """
window.violations = [];
window.announced = [];
addEventListener("securitypolicyviolation", (event) =>
  violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
addEventListener("error", (event) => violations.push(event.message));
addEventListener("unhandledrejection", (event) => violations.push(String(event.reason)));
addEventListener("DOMContentLoaded", () => {
  const status = document.querySelector("[aria-live=polite]");
  new MutationObserver(() => status.textContent && announced.push(status.textContent))
    .observe(status, { childList: true, characterData: true, subtree: true });
});
"""

# Returns the texts whose contrast with the color behind them is less than 4.5.
LOW_CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (color) => {
  const [r, g, b] = channels(color).map((value) =>
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if ((channels(color)[3] ?? 1) === 1) return color;
  }
  return "rgb(255, 255, 255)";
};
const found = [];
for (const node of document.querySelectorAll("body *")) {
  const text = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data).join("").trim();
  if (!text && !node.placeholder || !node.checkVisibility()) continue;
  const color = getComputedStyle(node, text ? null : "::placeholder").color;
  const [a, b] = [luminance(color), luminance(behind(node))].sort((a, b) => b - a);
  if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${text || node.placeholder}: ${color} on ${behind(node)}`);
}
return found;
"""

HOSTILE = """Text <img src=x onerror="window.hit = 1"> and <script>window.hit = 1</script>

<iframe srcdoc="<script>parent.hit = 1</script>"></iframe> &lt;b&gt;

[one](javascript:window.hit=1) [two](JaVaScRiPt:window.hit=1) [three](data:text/html,x) [four](//evil.example/)
![picture](http://evil.example/pixel.png) [five](https://example.com/"onclick="hit=1) <https://example.com/a>

# <img src=x onerror=window.hit=1>

- item with <svg onload=window.hit=1>
  - ![nested](http://evil.example/pixel.png)

> quoted <b>bold</b>

````html
```
<script>window.hit = 1</script>
```
````

~~~
never closed <img src=x onerror=window.hit=1>
"""

MARKDOWN = """# Title

A paragraph with **bold**, *italic*, ***both***, `code <b>`, snake_case_name, 2 * 3 * 4 and \\*stars\\*,
a [link](https://example.com/a_(b)) and https://example.com/x.

1. first
2. second
   - nested
   - list

   ```python
   def f():
       return 1
   ```
3. third

- a

- b

> quote
> more

---

```
plain
```
The end."""

# Lines with which a careless parser takes time that grows with the square of their length, or worse.
SLOW = ["a" * 10000, "*" * 10000, "**a" * 3000, "*a " * 3000, "_a_" * 3000, "[" * 10000, "[a](http://" * 900,
        "[a](http://b \"" * 700, "![" * 5000, "`" * 10000, "".join("`" * (n % 40 + 1) + "a" for n in range(500)),
        "http://" * 1400, "h" * 10000, "> " * 5000, "- " * 5000, " " * 10000 + "x", "\\" * 10000,
        "http://a" + "." * 10000 + "b", "\n" * 10000 + "x", "- a\n\n" * 2000, "#" * 10000, "***a***" * 1400]


def wait(condition, seconds=60):
    """Waits until a condition holds, and returns its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the page does not do what was expected"
        time.sleep(0.02)
    return value


class Page:
    """A page in a browser of its own."""

    def __init__(self, url, scheme="light", size=(1100, 800)):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=RECORDER)
        self.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.url = url
        self.emulate(scheme, size)
        self.open()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.check_isolation()
        self.driver.quit()

    def cdp(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def emulate(self, scheme, size):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        width, height = size
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self):
        self.driver.get(self.url + "/")
        wait(lambda: self.js("return document.querySelector('#model option, #problem .error') !== null"))

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector=".message:last-child > .text"):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def set_options(self, **values):
        self.find("#settings summary").click()
        for name, value in values.items():
            field = self.find(f"#{name.replace('_', '-')}")
            field.clear()
            field.send_keys(value)
        self.find("#settings summary").click()

    def send(self, text):
        self.find("#message").send_keys(text, Keys.ENTER)

    def is_busy(self):
        return self.js("return document.body.classList.contains('busy')")

    def finish(self, seconds=60):
        """Waits for the end of an answer."""
        wait(lambda: not self.is_busy(), seconds)

    def ask(self, text):
        self.send(text)
        self.finish()
        return self.text()

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def keys_with_shift(self, *keys):
        ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(*keys).key_up(Keys.SHIFT).perform()

    def click(self, label, scope=""):
        self.find(f'{scope} [aria-label="{label}"]').click()

    def clipboard(self):
        return self.js("return navigator.clipboard.readText()")

    def check_isolation(self):
        """Fails if the policy was violated, or anything but the page's own server was asked for anything."""
        assert self.js("return window.violations") == []
        for entry in self.driver.get_log("browser"):
            # The browser reports statuses such as 401 of requests.
            assert entry["source"] == "network", entry
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                assert url.startswith((self.url + "/", "data:image/svg+xml,")), url


def complete(server, **options):
    """Returns a chat completion of the API."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, **options}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def squeezed(text):
    return " ".join(text.split())


def check_conversation(server):
    """Answers are those of the API, while they stream and at their end."""
    with Page(server.url) as page:
        page.set_options(temperature="0", max_tokens="60")
        page.send(QUESTION)
        # Text appears before the answer is complete.
        seen = set()
        while page.is_busy():
            seen.add(page.text(".assistant > .text"))
        expected = complete(server, max_tokens=60)
        assert squeezed(page.text()) == squeezed(expected), (page.text(), expected)
        assert len(seen) > 3 and all(squeezed(expected).startswith(squeezed(text)) for text in seen), seen
        statistics = page.text(".stats")
        assert re.fullmatch(r"60 tokens · [\d.]+ tokens/s · first token after [\d.]+ s", statistics), statistics
        assert "cut off" in page.text(".note")
        assert len(page.js("return announced")) == 1

        page.click("Copy message", ".assistant")
        wait(lambda: page.clipboard() == expected)
        page.click("Regenerate answer")
        page.finish()
        assert squeezed(page.text()) == squeezed(expected) and len(page.all(".message")) == 2

        page.ask("And at night?")
        assert [len(page.all(f".{role}")) for role in ["user", "assistant"]] == [2, 2]
        # Only the last answer can be replaced.
        assert [button.is_displayed() for button in page.all(".last-only")] == [False, True]
        page.click("New chat")
        assert not page.all(".message") and page.find("#empty").is_displayed()
        assert squeezed(page.ask(QUESTION)) == squeezed(expected)


def check_stop():
    """A stopped answer is no longer generated, and keeps its text."""
    # Slow enough that no answer ends by itself before.
    server = Server(SISKIN, DECODER, "--throttle", "10%")
    with Page(server.url) as page:
        for stop in [lambda: page.click("Stop"), lambda: page.keys(Keys.ESCAPE), lambda: page.click("New chat")]:
            aborted = server.metric("siskin_request_success_total", finished_reason="abort")
            page.send("Count from 1 to 1000, one number per line.")
            wait(lambda: page.text(".assistant > .text"))
            stop()
            page.finish(5)
            wait(lambda: server.metric("siskin_requests_running") == 0, 10)
            assert server.metric("siskin_request_success_total", finished_reason="abort") == aborted + 1
            text = page.text()
            time.sleep(0.3)
            assert page.text() == text
            page.click("New chat")
    server.stop()


def check_hostile_text(stub):
    """Text of a model never becomes HTML, and links lead to the web only."""
    with Page(stub.url) as page:
        pieces = [HOSTILE[at : at + 7] for at in range(0, len(HOSTILE), 7)]
        stub.answers = [answer(*pieces), answer(HOSTILE)]
        page.ask("Attack")
        html = page.js("return document.querySelector('.assistant > .text').innerHTML")
        for text in ["<img src=x onerror=", "<script>window.hit = 1</script>", "<iframe srcdoc=", "&lt;b&gt;",
                     "javascript:window.hit=1", "![picture](http://evil.example/pixel.png)", "<svg onload=", "```\n"]:
            assert text in page.text(), text
        page.click("Regenerate answer")
        page.finish()
        assert page.js("return document.querySelector('.assistant > .text').innerHTML") == html
        found = page.js("""const answer = document.querySelector(".assistant > .text");
            return [[...new Set([...answer.querySelectorAll("*")].map((node) => node.localName))],
                    [...answer.querySelectorAll("a")].map((node) => [node.protocol, node.rel, node.target]),
                    [...answer.querySelectorAll("*")].flatMap((node) => [...node.attributes])
                      .map(({ name }) => name).filter((name) => /^on/.test(name)), window.hit ?? null]""")
        allowed = {"p", "h3", "ul", "li", "blockquote", "div", "span", "button", "svg", "use", "pre", "code", "a"}
        assert set(found[0]) <= allowed, found[0]
        assert found[1] and all(link == ["https:", "noopener noreferrer", "_blank"] for link in found[1]), found[1]
        assert found[2:] == [[], None], found
        # A message is shown as it was typed.
        stub.answers = [answer("ok")]
        page.ask("<b>*hi*</b>")
        html = page.js("return [...document.querySelectorAll('.user > .text')].at(-1).innerHTML")
        assert html == "&lt;b&gt;*hi*&lt;/b&gt;", html
        assert "/pixel.png" not in stub.paths


def check_markdown(stub):
    with Page(stub.url) as page:
        stub.answers = [answer(*MARKDOWN)]
        page.ask("Markdown")
        html = page.js("return document.querySelector('.assistant > .text').innerHTML")
        for part in ["<h3>Title</h3>", "<strong>bold</strong>", "<em>italic</em>", "<strong><em>both</em></strong>",
                     "<code>code &lt;b&gt;</code>", "snake_case_name, 2 * 3 * 4 and *stars*",
                     'href="https://example.com/a_(b)"', 'href="https://example.com/x"', "<li><p>nested</p></li>",
                     "def f():\n    return 1</code>", "<blockquote><p>quote\nmore</p></blockquote>", "<hr>",
                     "plain</code>", "<p>The end.</p>"]:
            assert part in html, (part, html)
        lists = page.js("return [...document.querySelectorAll('ol, ul')].map((list) => list.children.length)")
        assert lists == [3, 2, 2], lists
        page.click("Copy code", ".assistant > .text > .code")
        wait(lambda: page.clipboard() == "plain")
        for text in SLOW:
            page.click("New chat")
            stub.answers = [answer(text)]
            started = time.monotonic()
            page.ask("Slow")
            assert time.monotonic() - started < 3, (text[:20], time.monotonic() - started)
            assert page.js("return document.documentElement.scrollWidth <= innerWidth"), text[:20]


def check_edit(stub):
    """A conversation can be continued from an earlier message, and its settings are sent."""
    with Page(stub.url) as page:
        stub.bodies.clear()
        thinking = [{"reasoning_content": "Let me "}, {"reasoning_content": "think."}, "Two."]
        stub.answers = [answer("One."), answer(*thinking), answer("Three.")]
        page.set_options(system="Be brief.", temperature="0.5", max_tokens="7")
        page.ask("First")
        page.ask("Second")
        details = page.find(".reasoning")
        assert details.get_attribute("open") is None and page.text(".reasoning div") == "Let me think."
        page.find('.user [aria-label="Edit message"]').click()
        field = page.find(".edit textarea")
        assert field.get_attribute("value") == "First"
        field.send_keys(Keys.ESCAPE)
        assert len(page.all(".message")) == 4 and not page.all(".edit")
        page.find('.user [aria-label="Edit message"]').click()
        page.find(".edit textarea").send_keys(" again", Keys.ENTER)
        page.finish()
        assert page.text() == "Three." and len(page.all(".message")) == 2
        sent = [body["messages"] for body in stub.bodies]
        system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "First"}
        one, second = {"role": "assistant", "content": "One."}, {"role": "user", "content": "Second"}
        assert sent[:2] == [[system, first], [system, first, one, second]], sent
        assert sent[2] == [system, {"role": "user", "content": "First again"}], sent
        settings = {"temperature": 0.5, "max_tokens": 7, "model": "stub", "stream_options": {"include_usage": True}}
        assert settings.items() <= stub.bodies[0].items(), stub.bodies[0]
        # Invalid settings are shown, and nothing is sent.
        page.set_options(temperature="3")
        page.send("Hot")
        assert page.find("#options").is_displayed() and len(stub.bodies) == 3


def check_errors(stub):
    """Errors are shown, and a request can be repeated."""
    with Page(stub.url) as page:
        stub.bodies.clear()
        broken = [*list(answer("Half"))[:1], {"error": {"message": "out of <b>memory</b>"}}]
        stub.answers = [(429, "too many requests"), broken, [*broken[:1], None], answer("Whole.")]
        page.send("Hello")
        for message in ["too many requests", "out of <b>memory</b>", "The connection was closed"]:
            page.finish()
            assert message in page.text(".error p"), page.text(".error p")
            assert page.find(".error").get_attribute("role") == "alert"
            page.find(".retry").click()
        page.finish()
        assert page.text() == "Whole." and not page.all(".error") and len(stub.bodies) == 4
        assert all(body["messages"] == [{"role": "user", "content": "Hello"}] for body in stub.bodies)

        # A message after an error is part of the same turn.
        stub.answers = [(500, "broken"), answer("Fine.")]
        page.ask("One")
        page.ask("Two")
        assert stub.bodies[-1]["messages"][-1] == {"role": "user", "content": "One\n\nTwo"}

        # The server requires an API key.
        stub.key, stub.answers = "secret", [answer("Open.")]
        for key in ["wrong", "secret"]:
            if key == "wrong":
                page.send("Key")
            wait(lambda: page.find("#key-dialog").is_displayed() and not page.find("#key").get_attribute("value"))
            page.find("#key").send_keys(key, Keys.ENTER)
        page.finish()
        assert page.text() == "Open." and stub.keys[-1] == "Bearer secret"
        assert page.js("return [sessionStorage['siskin-api-key'], JSON.stringify(localStorage)]") == ["secret", "{}"]
        stub.key = None

        for models, message in [([], "no models"), ([{"id": "e", "capabilities": ["embedding"]}], "can chat")]:
            stub.models = models
            page.open()
            assert message in page.text("#problem")
            page.send("Nothing happens")
            assert not page.all(".message")
        stub.models = [{"id": "stub"}, {"id": "tuned", "parent": "stub", "capabilities": ["completion", "chat"]}]
        page.find("#problem .retry").click()
        wait(lambda: len(page.all("#model option")) == 2)
        page.find("#model option:last-child").click()
        page.open()
        assert page.find("#model").get_attribute("value") == "tuned"


def check_keyboard(stub):
    """Everything can be done, and its focus seen, without a mouse."""
    with Page(stub.url) as page:
        active = lambda: page.js("return document.activeElement.ariaLabel ?? document.activeElement.id")
        stub.bodies.clear()
        stub.answers = [answer("```\ncode\n```"), answer("Two.")]
        page.keys("One")
        page.keys_with_shift(Keys.ENTER)
        page.keys("line", Keys.ENTER)
        page.finish()
        assert stub.bodies[0]["messages"][0]["content"] == "One\nline"
        assert active() == "Message", active()
        focused = []
        for _ in range(20):
            page.keys(Keys.TAB)
            focused.append(active())
            style = page.js("""const style = getComputedStyle(document.activeElement);
                const box = getComputedStyle(document.activeElement.closest(".box") ?? document.body);
                return style.outlineStyle !== "none" || box.boxShadow !== "none" """)
            assert style or focused[-1] == "", focused[-1]
        for label in ["Model", "Settings", "New chat", "Edit message", "Copy message", "Code", "Copy code",
                      "Regenerate answer", "Send", "Message"]:
            assert label in focused, (label, focused)
        while active() != "Edit message":
            page.keys(Keys.TAB)
        page.keys(Keys.ENTER, Keys.END, "!", Keys.ENTER)
        page.finish()
        assert stub.bodies[1]["messages"][-1]["content"] == "One\nline!" and active() == "Message"
        while active() != "Settings":
            page.keys_with_shift(Keys.TAB)
        page.keys(Keys.ENTER)
        assert page.find("#system").is_displayed()
        page.keys(Keys.ESCAPE)
        assert not page.find("#system").is_displayed() and active() == "Settings"


def check_layout(stub):
    """The page fits narrow screens, is legible in both color schemes, and scrolls with an answer only if told to."""
    wide = "```\n" + "wide " * 100 + "\n```\n" + "long" * 200
    for scheme in ["light", "dark"]:
        with Page(stub.url, scheme, (360, 640)) as page:
            stub.answers = [answer({"reasoning_content": wide}, MARKDOWN, wide), (500, wide)]
            page.ask(wide)
            page.ask("Again")
            page.find("#settings summary").click()
            page.find(".reasoning summary").send_keys(Keys.ENTER)
            for size in [(360, 640), (320, 256), (550, 400), (1280, 800)]:
                page.emulate(scheme, size)
                # Without the width of a scroll bar.
                root = "document.documentElement"
                assert page.js(f"return {root}.scrollWidth <= {root}.clientWidth"), size
            assert page.js(LOW_CONTRAST) == []
            page.keys(Keys.ESCAPE)
            page.click("New chat")
            assert page.js(LOW_CONTRAST) == []

    with Page(stub.url, size=(800, 400)) as page:
        bottom = "return document.documentElement.scrollHeight - innerHeight - scrollY"
        lines = [event for line in answer(*["line\n\n"] * 60) for event in (line, 0.01)]
        stub.answers = [lines, lines]
        page.ask("Long")
        assert page.js(bottom) < 2
        page.send("Longer")
        time.sleep(0.2)
        page.js("scrollTo(0, 0)")
        page.finish()
        assert page.js("return scrollY") == 0
        page.click("Scroll to the end")
        assert page.js(bottom) < 2


def take_screenshots(server, folder):
    for scheme in ["light", "dark"]:
        with Page(server.url, scheme, (1000, 900)) as page:
            page.set_options(temperature="0")
            page.ask("Give me three tips for a good night of sleep.")
            page.ask("Write a Python function that reverses a string, without an example.")
            page.js("document.activeElement.blur()")
            ActionChains(page.driver).move_by_offset(1, 500).perform()
            page.driver.save_screenshot(str(folder / f"chat-page-{scheme}.png"))


def main():
    server = Server(SISKIN, DECODER)
    try:
        if "--screenshots" in sys.argv:
            return take_screenshots(server, Path(sys.argv[sys.argv.index("--screenshots") + 1]))
        page, headers = server.chat_page()
        stub = Stub(page, {name: headers[name] for name in ["content-type", "content-security-policy"]})
        check_conversation(server)
        check_stop()
        for check in [check_hostile_text, check_markdown, check_edit, check_errors, check_keyboard, check_layout]:
            check(stub)
        server.stop()
    finally:
        server.process.kill()
    print("the chat page works in Chromium")


if __name__ == "__main__":
    main()
