"""A browser without a window, spoken to over pipes (the DevTools protocol), so that no library is needed."""

import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
PATIENCE_S = 60


def path():
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """`with Browser() as browser: page = browser.open(url, width=390)`."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to_write = os.pipe()
        self.from_read, to_answer = os.pipe()

        def wire():
            # The browser listens on descriptor 3 and answers on 4; both are moved out of the way first.
            listening, answering = os.dup(to_read), os.dup(to_answer)
            os.dup2(listening, 3)
            os.dup2(answering, 4)

        command = [path(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=wire, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_answer)
        self.answers = os.fdopen(self.from_read, "rb")
        self.n_asked, self.rest = 0, b""
        return self

    def __exit__(self, *_):
        os.close(self.to_write)
        self.process.terminate()
        self.process.wait()
        self.answers.close()
        self.folder.cleanup()

    def ask(self, method, session=None, **parameters):
        self.n_asked += 1
        question = {"id": self.n_asked, "method": method, "params": parameters}
        if session:
            question["sessionId"] = session
        os.write(self.to_write, json.dumps(question).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.n_asked:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def next(self):
        while b"\0" not in self.rest:
            more = self.answers.read1(1 << 16)
            if not more:
                raise RuntimeError("the browser is gone")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width, height=900):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", session, width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 600)
        self.ask("Page.navigate", session, url=url)
        page = Page(self, session)
        page.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def evaluate(self, script):
        answer = self.browser.ask("Runtime.evaluate", self.session, expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def wait_for(self, condition):
        until = time.monotonic() + PATIENCE_S
        while not self.evaluate(condition):
            if time.monotonic() > until:
                raise RuntimeError(f"this did not come true within {PATIENCE_S} s: {condition}")
            time.sleep(0.1)
