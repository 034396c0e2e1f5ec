//! The picture of a blocked attack in the README, drawn from what the demonstration really says:
//! `PORTCULLIS_BLESS=1 cargo nextest run -p e2e picture` draws it anew.

use std::fmt::Write as _;
use std::process::Command;

use e2e::client::Client;
use e2e::gateway::{Folder, Gateway, binary, fed, json_of, root};
use e2e::{Era, golden};
use serde_json::json;

/// Sizes of the drawing, in units of SVG.
const WIDTH: usize = 1000;
const LINE: usize = 19;
const MARGIN: usize = 14;
/// The head of a pane, which has its title.
const HEAD: usize = 30;
/// Characters on a line of a pane that is half as wide as the picture, and of one that is as wide.
const HALF: usize = 58;
const WHOLE: usize = 122;

/// What a line is about, which is its colour.
#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Faint,
    Good,
    Bad,
}

impl Tone {
    const fn colour(self) -> &'static str {
        match self {
            Self::Plain => "#c9d1d9",
            Self::Faint => "#8b949e",
            Self::Good => "#7ee787",
            Self::Bad => "#ff7b72",
        }
    }
}

/// A pane: a title, and lines that are broken to fit.
struct Pane {
    title: &'static str,
    columns: usize,
    lines: Vec<(Tone, String)>,
}

impl Pane {
    const fn new(title: &'static str, columns: usize) -> Self {
        Self { title, columns, lines: Vec::new() }
    }

    fn say(&mut self, tone: Tone, text: &str) {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > self.columns {
                self.lines.push((tone, std::mem::take(&mut line)));
                // What goes on is further in.
                line.push_str("  ");
                line.push_str(word);
                continue;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.lines.push((tone, line));
    }

    fn height(&self, lines: usize) -> usize {
        HEAD + lines.max(self.lines.len()) * LINE + MARGIN
    }

    fn draw(&self, svg: &mut String, (x, y): (usize, usize), (width, height): (usize, usize)) {
        let title = escaped(self.title);
        let (inner, base) = (x + MARGIN, y + 20);
        writeln!(
            svg,
            r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#0d1117" stroke="#30363d"/>
<text x="{inner}" y="{base}" fill="#f0f6fc" font-weight="bold">{title}</text>"##
        )
        .unwrap();
        for (n, (tone, line)) in self.lines.iter().enumerate() {
            let (base, colour) = (y + HEAD + (n + 1) * LINE - 4, tone.colour());
            let line = escaped(line);
            writeln!(svg, r#"<text x="{inner}" y="{base}" fill="{colour}">{line}</text>"#).unwrap();
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What the server of the demonstration offers, from itself.
fn offered() -> Pane {
    let mut command = Command::new(binary());
    command.arg("canary");
    let list = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}\n";
    let answer = json_of(&fed(command, list));
    let mut pane = Pane::new("The server offers five tools", HALF);
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5, "the title says so");
    for tool in tools {
        let text = |key: &str| tool[key].as_str().unwrap();
        let tone = if text("name") == "convert" { Tone::Bad } else { Tone::Plain };
        pane.say(tone, &format!("{}: {}", text("name"), text("description")));
    }
    pane
}

/// What a client is shown and told.
fn shown(gateway: &Gateway) -> Pane {
    let client = Client::connect(gateway.address, "/mcp", Era::Modern, None);
    let mut pane = Pane::new("The client is shown three", HALF);
    pane.say(Tone::Faint, "tools/list");
    let tools = client.tools();
    assert_eq!(tools.len(), 3, "the title says so");
    pane.say(Tone::Good, &tools.join("  "));
    pane.say(Tone::Faint, "tools/call add {\"a\": 2, \"b\": 3}");
    let sum = client.call("add", &json!({ "a": 2, "b": 3 })).json();
    pane.say(Tone::Good, sum["result"]["content"][0]["text"].as_str().unwrap());
    pane.say(Tone::Faint, "tools/call convert {\"amount\": 1}");
    let refused = client.call("convert", &json!({ "amount": 1 })).json();
    pane.say(Tone::Bad, refused["error"]["message"].as_str().unwrap());
    pane.say(Tone::Faint, "tools/call delete_account {\"account\": \"ana\"}");
    let denied = client.call("delete_account", &json!({ "account": "ana" })).json();
    let denied = denied["result"]["content"][0]["text"].as_str().unwrap();
    pane.say(Tone::Bad, &format!("{}.", denied.split('.').next().unwrap()));
    pane
}

/// What the gateway logs about it, without times.
fn logged(gateway: &Gateway) -> Pane {
    let mut pane = Pane::new("The gateway logs why", WHOLE);
    // The last call is logged last.
    let said = gateway.says("canary/delete_account");
    for (part, tone) in [
        ("definition withheld", Tone::Bad),
        ("ALLOW  anonymous tools/list", Tone::Good),
        ("ALLOW  anonymous canary/add", Tone::Good),
        ("DENY   anonymous canary/convert", Tone::Bad),
        ("DENY   anonymous canary/delete_account", Tone::Bad),
    ] {
        let line = said.lines().find(|line| line.contains(part)).unwrap();
        let (_, line) = line.split_once(' ').unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let [rest @ .., last] = &words[..] else { panic!("{line}") };
        let is_time = last.strip_suffix("ms").is_some_and(|n| n.parse::<u64>().is_ok());
        pane.say(tone, &if is_time { rest.join(" ") } else { line.to_owned() });
    }
    pane
}

fn picture(offered: &Pane, shown: &Pane, logged: &Pane) -> String {
    let lines = offered.lines.len().max(shown.lines.len());
    let (upper, lower) = (offered.height(lines), logged.height(0));
    let half = (WIDTH - 3 * MARGIN) / 2;
    let height = upper + lower + 3 * MARGIN;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12.5" xml:space="preserve" role="img">
<title>A poisoned tool is withheld</title>
"#
    );
    offered.draw(&mut svg, (MARGIN, MARGIN), (half, upper));
    shown.draw(&mut svg, (2 * MARGIN + half, MARGIN), (half, upper));
    logged.draw(&mut svg, (MARGIN, 2 * MARGIN + upper), (WIDTH - 2 * MARGIN, lower));
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn the_picture_of_a_blocked_attack_is_what_the_demonstration_says() {
    let folder = Folder::new();
    let mut command = Command::new(binary());
    command.args(["run", "--log-format", "human"]).current_dir(folder.path());
    command.envs([("LISTEN", "127.0.0.1:0"), ("OPS", "127.0.0.1:0")]);
    let gateway = Gateway::spawn(command, folder, "/nowhere".into());
    gateway.has_read(1);
    let (offered, shown) = (offered(), shown(&gateway));
    let drawn = picture(&offered, &shown, &logged(&gateway));
    golden::compare([(&*root().join("docs/images/blocked.svg"), &*drawn)]);
}
