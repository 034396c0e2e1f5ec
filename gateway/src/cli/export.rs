//! `portcullis export`: what a client has to be told to come to the gateway.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io, path};

use clap::{Args, ValueEnum};
use gateway::config::settings::{Listener, Scheme, Settings};
use serde_json::{Map, Value, json};

use super::{complain, print, say, settings};

/// The variable that clients find the key in.
pub(super) const KEY: &str = "PORTCULLIS_API_KEY";

#[derive(Debug, Args)]
pub(super) struct Export {
    /// The configuration of the gateway.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// For which client.
    #[arg(long, value_enum)]
    client: Client,
    /// Which listener; the first if not given.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// What stands before the path of a route, such as `https://mcp.example.com`; what the listener says
    /// if not given.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// Claude Code: `.mcp.json`.
    ClaudeCode,
    /// Claude Code, set for everybody by an administrator: `managed-mcp.json`.
    ClaudeManaged,
    /// Claude Desktop, which starts its servers: `claude_desktop_config.json`.
    ClaudeDesktop,
    /// Cursor: `.cursor/mcp.json`.
    Cursor,
    /// VS Code: `.vscode/mcp.json`.
    Vscode,
    /// Codex: `config.toml`.
    Codex,
    /// opencode: `opencode.json`.
    Opencode,
}

/// Where a client goes, and how it says who it is.
#[derive(Debug)]
pub(super) struct Door {
    /// What stands before paths.
    base: String,
    /// It shows a key; otherwise nothing, or what it finds out itself (OAuth).
    keyed: bool,
}

impl Door {
    /// That of a listener.
    pub(super) fn of(listener: &Listener, url: Option<&str>) -> Self {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let own = || format!("{scheme}://{}", listener.address);
        let public = listener.public.as_deref().map(str::to_owned);
        let base = url.map(str::to_owned).or(public).unwrap_or_else(own);
        let base = base.trim_end_matches('/').to_owned();
        Self { base, keyed: listener.schemes.first() == Some(&Scheme::ApiKey) }
    }
}

pub(super) fn run(export: &Export) -> ExitCode {
    let settings = match settings(&export.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let named =
        |listener: &&Listener| export.listener.as_ref().is_none_or(|name| *listener.name == **name);
    let Some(listener) = settings.listeners.iter().find(named) else {
        return complain("there is no such listener");
    };
    if listener.schemes.first() == Some(&Scheme::Certificate) {
        say("note: this listener wants a certificate, which few clients can show");
    }
    let door = Door::of(listener, export.url.as_deref());
    match (door.keyed, export.client) {
        (true, Client::ClaudeDesktop) => say(&format!(
            "note: write the key in the place of the empty `{KEY}` in `env` of each entry; `portcullis keygen` makes one. \
             Where no gateway runs, what the servers of the route need has to stand in `env` as well"
        )),
        (true, _) => {
            say(&format!(
                "note: the client finds its key in `{KEY}`; `portcullis keygen` makes one"
            ));
        }
        (false, _) => {}
    }
    let started = match Started::of(&export.config) {
        Ok(started) => started,
        Err(error) => return complain(&format!("could not find this program: {error}")),
    };
    print(&snippet(export.client, &settings, &door, &started))
}

/// What a client starts that starts its servers. It does so in a folder and with a `PATH` of its own, so both are
/// absolute.
#[derive(Debug)]
pub(super) struct Started {
    /// This program.
    program: PathBuf,
    /// The configuration.
    file: PathBuf,
}

impl Started {
    /// This program with the configuration `file`.
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        Ok(Self { program: own_path()?, file: path::absolute(file)? })
    }
}

/// The absolute path that this program was started by, so that a link that is set to another version is followed by those
/// who start it; its file, where it cannot be told by which path it was started.
fn own_path() -> io::Result<PathBuf> {
    let own = env::current_exe()?;
    let Some(named) = env::args_os().next().map(PathBuf::from) else { return Ok(own) };
    let folders = env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match named.components().count() {
        0 | 1 => env::split_paths(&folders).map(|folder| folder.join(&named)).collect(),
        _ => vec![named],
    };
    let leads_here = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|file| file == own);
    match candidates.iter().find(|path| leads_here(path)) {
        Some(path) => path::absolute(path),
        None => Ok(own),
    }
}

/// What stands in the file of a client.
pub(super) fn snippet(
    client: Client,
    settings: &Settings,
    door: &Door,
    started: &Started,
) -> String {
    let routes = settings.routes.iter().map(|route| (name(&route.path), &*route.path));
    let url = |path: &str| format!("{}{path}", door.base);
    let json = |list: &str, server: &dyn Fn(&str) -> Value| {
        let servers: Map<_, _> = routes.clone().map(|(name, path)| (name, server(path))).collect();
        json!({ list: servers })
    };
    let http = |kind: Option<&str>, path: &str, key: &str| {
        let mut server = Map::new();
        server.extend(kind.map(|kind| ("type".to_owned(), kind.into())));
        server.insert("url".to_owned(), url(path).into());
        if door.keyed {
            let shown = json!({ "Authorization": format!("Bearer {key}") });
            server.insert("headers".to_owned(), shown);
        }
        Value::Object(server)
    };
    let own = format!("${{{KEY}}}");
    let whole = match client {
        Client::ClaudeCode | Client::ClaudeManaged => {
            json("mcpServers", &|path| http(Some("http"), path, &own))
        }
        Client::Cursor => json("mcpServers", &|path| http(None, path, &format!("${{env:{KEY}}}"))),
        Client::Opencode => {
            json("mcp", &|path| http(Some("remote"), path, &format!("{{env:{KEY}}}")))
        }
        Client::Vscode => {
            let mut whole =
                json("servers", &|path| http(Some("http"), path, "${input:portcullis-api-key}"));
            if let (true, Some(members)) = (door.keyed, whole.as_object_mut()) {
                let input = json!([{ "type": "promptString", "id": "portcullis-api-key",
                    "description": "API key of the MCP gateway", "password": true }]);
                members.insert("inputs".to_owned(), input);
            }
            whole
        }
        Client::ClaudeDesktop => json("mcpServers", &|path| {
            let (program, file) = (started.program.display(), started.file.display());
            let mut server = json!({ "command": program.to_string(),
                "args": ["stdio", "-c", file.to_string(), "--route", path] });
            if let (true, Some(members)) = (door.keyed, server.as_object_mut()) {
                members.insert("env".to_owned(), json!({ KEY: "" }));
            }
            server
        }),
        Client::Codex => {
            let server = |(name, path): (String, &str)| {
                let key = format!("bearer_token_env_var = \"{KEY}\"\n");
                let key = if door.keyed { key } else { String::new() };
                let (name, url) = (Value::from(name), Value::from(url(path)));
                format!("[mcp_servers.{name}]\nurl = {url}\n{key}")
            };
            return routes.map(server).collect::<Vec<_>>().join("\n");
        }
    };
    format!("{whole:#}\n")
}

/// What a client calls a route.
fn name(path: &str) -> String {
    let name = path.trim_matches('/').replace('/', "-");
    if name.is_empty() { "portcullis".to_owned() } else { name }
}
