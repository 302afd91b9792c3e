//! Chromium without a window, driven over its DevTools protocol: JSON messages, each with a NUL at
//! its end, over two pipes (<https://chromedevtools.github.io/devtools-protocol/>). Clicks and keys
//! are real: the browser decides which element they hit.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::support::{Work, ensure};

/// The time limit for an answer of the browser. A page gets a quarter of it to fulfil a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether Chromium is installed.
pub(crate) fn is_here() -> bool {
    Command::new("chromium")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|ended| ended.success())
}

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// Console errors, exceptions, and requests of the page.
    trouble: Vec<String>,
    /// The only address that the page may load.
    page: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts Chromium. All files that it writes are below `work`.
    pub(crate) fn start(work: &Work) -> Result<Browser, Failed> {
        let (to, from) = (work.path().join("to"), work.path().join("from"));
        crate::support::run(work.command("mkfifo").args([&to, &from]))?;
        // The protocol uses the descriptors 3 and 4. The sandbox does not work as root, and the
        // page is trusted.
        let script = "exec chromium --headless --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage \
            --no-first-run --user-data-dir=profile --force-color-profile=srgb --hide-scrollbars about:blank 3<to 4>from";
        let mut command = work.command("sh");
        command
            .args(["-c", script])
            .env("HOME", work.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command
            .stderr(File::create(work.path().join("chromium.log"))?)
            .spawn()?;
        let to = File::options().write(true).open(to)?;
        let mut reader = BufReader::new(File::open(from)?);
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while reader
                .read_until(0, &mut message)
                .is_ok_and(|length| length > 0)
            {
                let value = serde_json::from_slice(message.strip_suffix(b"\0").unwrap_or(&message));
                if value.is_ok_and(|value| send.send(value).is_err()) {
                    break;
                }
                message.clear();
            }
        });
        let (trouble, page) = (Vec::new(), String::new());
        let mut browser = Browser {
            child,
            to,
            from: receive,
            session: None,
            sent: 0,
            trouble,
            page,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.ask("Target.attachToTarget", attach)?["sessionId"]
            .as_str()
            .map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}))?;
        }
        browser.size(1280, 900)?;
        Ok(browser)
    }

    /// Sends a command and waits for its answer. Events in between are recorded.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Failed> {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let answer = self
                .from
                .recv_timeout(PATIENCE)
                .map_err(|_| format!("Chromium does not answer {method}"))?;
            if answer["id"] == json!(id) {
                return match answer.get("error") {
                    Some(error) => Err(format!("{method}: {error}").into()),
                    None => Ok(answer["result"].clone()),
                };
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.trouble.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" => self.trouble.push(format!("console: {params}")),
            "Log.entryAdded" => self.trouble.push(format!("log: {}", params["entry"])),
            "Page.javascriptDialogOpening" => self.trouble.push(format!("dialog: {params}")),
            "Network.requestWillBeSent" if params["request"]["url"] != json!(self.page) => {
                self.trouble
                    .push(format!("request: {}", params["request"]["url"]));
            }
            _ => {}
        }
    }

    /// Opens a page and waits until its script has drawn it. Returns the time in milliseconds, by
    /// the page's own clock.
    pub(crate) fn open(&mut self, file: &Path) -> Result<f64, Failed> {
        self.load(file)?;
        self.wait("document.documentElement.dataset.ready !== undefined")?;
        // The first frame that shows the page.
        let drawn = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))";
        let milliseconds = self.eval(drawn)?.as_f64().ok_or("the page has no clock")?;
        Ok(milliseconds)
    }

    /// Opens a page without waiting for scripts.
    pub(crate) fn load(&mut self, file: &Path) -> Result<(), Failed> {
        self.page = format!("file://{}", file.display());
        self.ask("Page.navigate", json!({"url": self.page}))?;
        Ok(())
    }

    /// The value of an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<Value, Failed> {
        // Without scripts, a promise would never resolve.
        let waits = expression.starts_with("new Promise");
        let params =
            json!({"expression": expression, "awaitPromise": waits, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", params)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(format!("{expression}: {details}").into()),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// The value of an expression, which must be a string.
    pub(crate) fn text(&mut self, expression: &str) -> Result<String, Failed> {
        Ok(self
            .eval(expression)?
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("{expression}: no text"))?)
    }

    /// Fails unless an expression becomes true.
    pub(crate) fn wait(&mut self, expression: &str) -> Result<(), Failed> {
        let start = Instant::now();
        // While a page loads, an expression may have no context.
        while !self
            .eval(expression)
            .is_ok_and(|value| value == json!(true))
        {
            if start.elapsed() > PATIENCE / 4 {
                let page = self.eval("document.body.innerText.slice(0, 3000)")?;
                return Err(
                    format!("never true: {expression}\n{page:#}\n{:?}", self.trouble).into(),
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Clicks on the center of the element that a selector finds, or near its upper left corner,
    /// the title of an opened tile.
    pub(crate) fn click(&mut self, selector: &str, corner: bool) -> Result<(), Failed> {
        let place = format!(
            "(() => {{ const found = document.querySelector({0}); found.scrollIntoView({{block: 'nearest'}});
                const box = found.getBoundingClientRect();
                return [box.x + ({1} ? 12 : box.width / 2), box.y + ({1} ? 8 : box.height / 2)]; }})()",
            json!(selector),
            corner
        );
        let place = self.eval(&place)?;
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": button, "buttons": buttons, "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Presses a key by its name: `Enter`, `ArrowRight`, `/`.
    pub(crate) fn key(&mut self, key: &str) -> Result<(), Failed> {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "Backspace" => (8, ""),
            "Tab" => (9, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            other => (0, other),
        };
        let down = if text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        for kind in [down, "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if !text.is_empty() && kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.ask("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Types a text into the focused element.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failed> {
        self.ask("Input.insertText", json!({"text": text}))
            .map(drop)
    }

    /// Sets the size of the window.
    pub(crate) fn size(&mut self, width: u32, height: u32) -> Result<(), Failed> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size)
            .map(drop)
    }

    /// Sets the system's colour scheme: `light` or `dark`.
    pub(crate) fn prefers(&mut self, scheme: &str) -> Result<(), Failed> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}))
            .map(drop)
    }

    /// Allows or blocks scripts.
    pub(crate) fn scripts(&mut self, allowed: bool) -> Result<(), Failed> {
        self.ask(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": !allowed}),
        )
        .map(drop)
    }

    /// Writes a screenshot of the window.
    pub(crate) fn picture(&mut self, file: &Path) -> Result<(), Failed> {
        let picture = self.ask("Page.captureScreenshot", json!({"format": "png"}))?;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap_or_default())?;
        ensure(bytes.starts_with(b"\x89PNG"), || "the picture is no PNG")?;
        Ok(std::fs::write(file, bytes)?)
    }

    /// Fails if the page has written to the console, thrown an exception, or tried to load another
    /// file.
    pub(crate) fn expect_no_trouble(&mut self) -> Result<(), Failed> {
        // Events arrive before the answer to this command.
        self.eval("new Promise(done => setTimeout(done, 50))")?;
        ensure(self.trouble.is_empty(), || self.trouble.join("\n"))
    }
}
