//! `docs/first-hour.md`, followed from top to bottom as its reader does: each block is run in its order in one scratch
//! folder, and what is printed is compared with the page.
//!
//! What a block is goes by the word behind its fence:
//!
//! * `sh`: commands for the reader's terminal, all in one shell. `portcullis run` alone starts a gateway instead.
//! * `text`: what the commands before it print, on standard output and standard error.
//! * `log`: lines that the gateway logs, in this order, beside others. `^C` interrupts it first.
//! * `python` and `yaml`: a file, if the first line is a comment with its name; otherwise a section of
//!   `portcullis.yaml` that takes the place of the one with that name.
//!
//! `…` stands for any text, and on a line of its own for any lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use e2e::gateway::{Folder, Gateway, binary, root};
use e2e::{PATIENCE, eventually};

/// The page that is followed here. `documents.rs` leaves its blocks to this test.
pub(crate) const PAGE: &str = "docs/first-hour.md";

/// The line after the output of a block of commands.
const END: &str = "the end of this block";

/// A fenced block of the page.
#[derive(Debug)]
struct Block<'a> {
    kind: &'a str,
    text: String,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut found, mut open): (Vec<Block<'_>>, Option<Block<'_>>) = (Vec::new(), None);
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => open = Some(Block { kind, text: String::new() }),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// Whether a line is the expected one, in which `…` stands for any text.
fn is_line(expected: &str, line: &str) -> bool {
    let parts: Vec<_> = expected.split('…').collect();
    let [first, between @ .., last] = &parts[..] else { return expected == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in between {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether these are the expected lines, among which `…` alone stands for any number of lines.
fn are_lines(expected: &[&str], lines: &[String]) -> bool {
    match expected {
        [] => lines.is_empty(),
        ["…", rest @ ..] => (0..=lines.len()).any(|n| are_lines(rest, &lines[n..])),
        [first, rest @ ..] => match lines {
            [line, others @ ..] => is_line(first, line) && are_lines(rest, others),
            [] => false,
        },
    }
}

/// The two ports of the page, and two that are free here. They are below those that the system gives to sockets
/// without a port, so no other test takes them meanwhile.
fn ports() -> [(String, String); 2] {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut free = (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    ["127.0.0.1:8080", "127.0.0.1:9901"]
        .map(|named| (named.to_owned(), format!("127.0.0.1:{}", free.next().unwrap())))
}

/// The two terminals of the reader.
struct Reader {
    home: Folder,
    bin: Folder,
    ports: [(String, String); 2],
    _shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
    gateway: Option<Gateway>,
    /// How much of the gateway's log the page has shown.
    shown: usize,
}

impl Reader {
    fn new() -> Self {
        let (home, bin) = (Folder::new(), Folder::new());
        symlink(binary(), bin.path().join("portcullis")).unwrap();
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", bin.path().display()));
        command.env("HOME", home.path()).current_dir(home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().unwrap();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        let (lines, output) = channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).all(|line| lines.send(line).is_ok())
        });
        let input = shell.stdin.take().unwrap();
        let ports = ports();
        Self { home, bin, ports, _shell: shell, input, output, gateway: None, shown: 0 }
    }

    /// The folder that the page works in.
    fn folder(&self) -> PathBuf {
        self.home.path().join("first-hour")
    }

    /// A text of the page with the ports that are free here.
    fn here(&self, text: &str) -> String {
        self.ports.iter().fold(text.to_owned(), |text, (named, free)| text.replace(named, free))
    }

    /// Runs commands in the shell; what they have printed.
    fn run(&mut self, commands: &str) -> Vec<String> {
        let block = self.bin.path().join("block");
        fs::write(&block, self.here(commands)).unwrap();
        let block = block.display();
        writeln!(self.input, ". {block} < /dev/null 2>&1\nprintf '\\n{END}\\n'").unwrap();
        let mut lines = Vec::new();
        loop {
            let line = self.output.recv_timeout(PATIENCE);
            match line.unwrap_or_else(|_| panic!("{commands}\ndoes not end:\n{lines:#?}")) {
                line if line == END => break,
                line => lines.push(line),
            }
        }
        // The line end before the last line is of this test.
        lines.pop_if(|last| last.is_empty());
        // What the commands have written is for these ports, too.
        let file = self.folder().join("portcullis.yaml");
        if let Ok(text) = fs::read_to_string(&file)
            && self.here(&text) != text
        {
            fs::write(file, self.here(&text)).unwrap();
        }
        lines
    }

    fn start(&mut self) {
        let mut command = Command::new(binary());
        // As it logs at a terminal.
        command.args(["run", "--log-format", "human"]).current_dir(self.folder());
        let [(_, listen), (_, ops)] = &self.ports;
        command.envs([("LISTEN", listen), ("OPS", ops)]);
        let audit = self.folder().join("audit.jsonl");
        self.gateway = Some(Gateway::spawn(command, Folder::new(), audit));
        self.shown = 0;
    }

    /// Waits for lines of the gateway's log.
    fn logs(&mut self, expected: &str) {
        for line in expected.lines() {
            let gateway = self.gateway.as_ref().unwrap();
            if line == "^C" {
                let pid = gateway.id().to_string();
                assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
                continue;
            }
            let line = self.here(line);
            let shown = self.shown;
            self.shown = eventually(&format!("`{line}` in the log"), || {
                let log = gateway.said();
                let mut at = shown;
                log.get(shown..).unwrap().split_inclusive('\n').find_map(|said| {
                    at += said.len();
                    said.strip_suffix('\n').is_some_and(|said| is_line(&line, said)).then_some(at)
                })
            });
        }
        // What comes next finds all that it has written.
        if expected.starts_with("^C\n") {
            assert_eq!(self.gateway.as_mut().unwrap().ended(), Some(0));
        }
    }

    /// Writes a file, or puts a section in the place of another one of the configuration.
    fn edit(&self, text: &str) {
        let (first, _) = text.split_once('\n').unwrap();
        if let Some(name) = first.strip_prefix("# ") {
            fs::write(self.folder().join(name), text).unwrap();
            return;
        }
        let file = self.folder().join("portcullis.yaml");
        let (mut edited, mut skips) = (String::new(), false);
        for line in fs::read_to_string(&file).unwrap().lines() {
            if line == first {
                edited.push_str(text);
                edited.push('\n');
                skips = true;
            } else if !line.is_empty() && !line.starts_with(' ') {
                skips = false;
            }
            if !skips {
                edited.push_str(line);
                edited.push('\n');
            }
        }
        assert!(edited.contains(text), "there is no section `{first}`");
        // Who reads meanwhile reads the old one or the new one.
        fs::write(file.with_extension("next"), edited).unwrap();
        fs::rename(file.with_extension("next"), file).unwrap();
    }
}

#[test]
fn a_reader_who_follows_the_page_sees_what_it_shows() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let mut reader = Reader::new();
    let (mut printed, mut by): (Vec<String>, _) = (Vec::new(), String::new());
    let mut count = 0;
    for Block { kind, text } in blocks(&page) {
        if kind == "text" {
            let expected = reader.here(&text);
            let lines: Vec<_> = expected.lines().collect();
            let said = printed.join("\n");
            assert!(are_lines(&lines, &printed), "{by}\nprints\n{said}\nand not\n{expected}");
            printed.clear();
            count += 1;
            continue;
        }
        assert!(printed.is_empty(), "{by}\nprints\n{}", printed.join("\n"));
        match kind {
            // What is tested is built, and found by its name.
            "sh" if text.starts_with("cargo build ") => {}
            "sh" if text == "portcullis run\n" => reader.start(),
            "sh" => printed = reader.run(&text),
            "log" => reader.logs(&text),
            "python" | "yaml" => reader.edit(&text),
            other => panic!("nobody knows what to do with `{other}`"),
        }
        by = text;
    }
    assert!(printed.is_empty(), "{by}\nprints\n{}", printed.join("\n"));
    assert!(count > 20, "{count}");
}

#[test]
fn what_is_expected_is_compared_to_the_end() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let is =
        |expected: &str, text: &str| are_lines(&expected.lines().collect::<Vec<_>>(), &lines(text));
    assert!(is("a … c\nd", "a b c\nd") && is("…\nd", "a\nb\nd") && is("…", "") && is("", ""));
    assert!(!is("a … c", "a b d") && !is("a", "a\nb") && !is("a\nb", "a") && !is("", "a"));
    assert!(!is("a … b … c", "a b c") && is("a…a", "aa") && !is("a…a", "a"));
}
