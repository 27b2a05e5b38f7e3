//! A real Chromium, driven through its debugging pipe: nothing to install but the browser.
//!
//! ```text
//!   test  --- JSON, NUL ---> fifo "to"   ---> descriptor 3 of chromium
//!         <-- JSON, NUL ---  fifo "from" <--- descriptor 4
//! ```
//! Answers carry the number of their call; what carries none is an event and is kept in order.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// No answer within this means that the browser hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The width and height of every page.
pub const WINDOW: (u32, u32) = (1440, 1000);

/// A running browser.
pub struct Chromium {
    child: Child,
    to: File,
    from: Receiver<Value>,
    folder: PathBuf,
    calls: u64,
    /// What happened, in order, since it was last taken.
    pub events: Vec<Value>,
}

/// A page of it.
pub struct Page {
    session: String,
}

fn program() -> Option<String> {
    let named = std::env::var("NPUMEM_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map(str::to_owned);
    let works = |program: &String| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    named.into_iter().chain(known).find(works)
}

impl Chromium {
    /// Starts one with an empty profile under `folder`; `None` when there is none on this machine.
    pub fn start(folder: &Path) -> Option<Chromium> {
        let program = program()?;
        let folder = folder.join(format!("chromium-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (to, from) = (folder.join("to"), folder.join("from"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success(), "mkfifo");
        let child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$TO\" 4>\"$FROM\"", "sh", &program, "--remote-debugging-pipe", "--headless"])
            .args(["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .envs([("TO", &to), ("FROM", &from)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening a FIFO waits for the other side, in the order in which the shell opens them.
        let to = File::options().write(true).open(&to).unwrap();
        let mut reader = BufReader::new(File::open(&from).unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).unwrap_or(0) > 0 {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        Some(Chromium { child, to, from, folder, calls: 0, events: Vec::new() })
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == json!(self.calls) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) -> Page {
        let target = self.call(None, "Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = self.call(None, "Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        let page = Page { session: attached["sessionId"].as_str().unwrap().to_owned() };
        for domain in ["Runtime", "Log", "Network", "Page"] {
            self.call(Some(&page.session), &format!("{domain}.enable"), json!({}));
        }
        let (width, height) = WINDOW;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call(Some(&page.session), "Emulation.setDeviceMetricsOverride", metrics);
        self.events.clear();
        let url = format!("file://{}", file.display());
        let navigated = self.call(Some(&page.session), "Page.navigate", json!({ "url": url }));
        assert!(navigated.get("errorText").is_none(), "{navigated}");
        self.wait(&page, "document.readyState === 'complete' && location.href !== 'about:blank'");
        page
    }

    /// Waits until an expression is true, frame by frame.
    pub fn wait(&mut self, page: &Page, expression: &str) {
        for _ in 0..600 {
            if self.value(page, expression) == json!(true) {
                return;
            }
            self.frame(page);
        }
        panic!("never true: {expression}");
    }

    /// Lets the page draw what it has asked for.
    pub fn frame(&mut self, page: &Page) {
        let frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))";
        self.value(page, frames);
    }

    /// What an expression comes to in the page.
    pub fn value(&mut self, page: &Page, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call(Some(&page.session), "Runtime.evaluate", parameters);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The same, as text.
    pub fn text(&mut self, page: &Page, expression: &str) -> String {
        let value = self.value(page, expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is no text: {value}")).to_owned()
    }

    /// The same, as a number.
    pub fn number(&mut self, page: &Page, expression: &str) -> f64 {
        let value = self.value(page, expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is no number: {value}"))
    }

    /// A mouse event at a place of the window: `mouseMoved`, `mousePressed`, `mouseReleased`.
    pub fn mouse(&mut self, page: &Page, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let button = if kind == "mouseMoved" && clicks == 0 { "none" } else { "left" };
        let parameters = json!({"type": kind, "x": x, "y": y, "button": button, "buttons": u32::from(button == "left"), "clickCount": clicks});
        self.call(Some(&page.session), "Input.dispatchMouseEvent", parameters);
    }

    /// A turn of the wheel; down is positive.
    pub fn wheel(&mut self, page: &Page, (x, y): (f64, f64), down: f64) {
        let parameters = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": down});
        self.call(Some(&page.session), "Input.dispatchMouseEvent", parameters);
        self.frame(page);
    }

    /// A key by its name (`Enter`, `ArrowRight`) or letter.
    pub fn key(&mut self, page: &Page, key: &str) {
        let text = if key.chars().count() == 1 { json!(key) } else { json!("") };
        let code = json!({"Enter": 13, "Escape": 27, "ArrowRight": 39})[key].as_u64().unwrap_or(0);
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text.clone() } else { json!("") };
            let parameters = json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.call(Some(&page.session), "Input.dispatchKeyEvent", parameters);
        }
        self.frame(page);
    }

    /// Text into the element that has the focus.
    pub fn type_text(&mut self, page: &Page, text: &str) {
        self.call(Some(&page.session), "Input.insertText", json!({ "text": text }));
        self.frame(page);
    }

    /// Errors that the page raised or printed, and addresses other than its own that it asked for.
    pub fn complaints(&mut self) -> Vec<String> {
        let complaint = |event: Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
                "Log.entryAdded" => Some(parameters["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str()?;
                    (!url.starts_with("file://") && !url.starts_with("data:")).then(|| url.to_owned())
                }
                _ => None,
            }
        };
        std::mem::take(&mut self.events).into_iter().filter_map(complaint).collect()
    }

    /// Closes a page.
    pub fn close(&mut self, page: Page) {
        self.call(Some(&page.session), "Page.close", json!({}));
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        // The shell became the browser: this is its own process and no other.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
