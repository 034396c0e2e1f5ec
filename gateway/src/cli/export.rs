//! `portcullis export`: prints the settings that a client needs to connect to the gateway.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io, path};

use clap::{Args, ValueEnum};
use gateway::config::settings::{AuthScheme, ListenerSettings, RouteSettings};
use serde_json::{Map, Value, json};

use super::{client_settings, complain, print, say};

/// Environment variable that clients read the API key from.
pub(super) const KEY: &str = "PORTCULLIS_API_KEY";

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The configuration of the gateway.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// The client to print settings for.
    #[arg(long, value_enum)]
    client: ClientKind,
    /// The name of the listener. Default: the first one.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The URL before the path of a route, such as `https://mcp.example.com`. Default: the one of the listener.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// A client whose configuration format is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ClientKind {
    /// Claude Code, for one project: `.mcp.json`.
    ClaudeCode,
    /// Claude Code, managed by an administrator: `managed-mcp.json`.
    ClaudeManaged,
    /// Claude Desktop, which starts servers as programs: `claude_desktop_config.json`.
    ClaudeDesktop,
    /// Cursor, for one project: `.cursor/mcp.json`.
    Cursor,
    /// VS Code, for one workspace: `.vscode/mcp.json`.
    Vscode,
    /// Codex, for the user: `config.toml`.
    Codex,
    /// opencode, with its own format: `opencode.json`.
    Opencode,
}

/// How a client reaches a listener and authenticates.
#[derive(Debug)]
pub(super) struct ClientEndpoint {
    /// URL before the path of a route, without a slash at the end.
    base: String,
    /// Whether the client sends an API key. If not, it sends nothing, or discovers OAuth by itself.
    keyed: bool,
}

impl ClientEndpoint {
    /// Reads it from a listener; `url` overrides the base URL.
    pub(super) fn of(listener: &ListenerSettings, url: Option<&str>) -> Self {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let own = || format!("{scheme}://{}", listener.address);
        let public = listener.public.as_deref().map(str::to_owned);
        let base = url.map(str::to_owned).or(public).unwrap_or_else(own);
        let base = base.trim_end_matches('/').to_owned();
        Self { base, keyed: listener.schemes.first() == Some(&AuthScheme::ApiKey) }
    }
}

pub(super) fn run(export: &ExportArgs) -> ExitCode {
    let settings = match client_settings(&export.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let named = |listener: &&ListenerSettings| {
        export.listener.as_ref().is_none_or(|name| *listener.name == **name)
    };
    let Some(listener) = settings.listeners.iter().find(named) else {
        return complain("there is no such listener");
    };
    if listener.schemes.first() == Some(&AuthScheme::Certificate) {
        say("note: this listener wants a certificate, which few clients can show");
    }
    let door = ClientEndpoint::of(listener, export.url.as_deref());
    match (door.keyed, export.client) {
        (true, ClientKind::ClaudeDesktop) => say(&format!(
            "note: write the key in the place of the empty `{KEY}` in `env` of each entry; `portcullis keygen` makes one. \
             Where no gateway runs, what the servers of the route need has to stand in `env` as well"
        )),
        (true, ClientKind::Vscode) => say(
            "note: the client asks for the key once and keeps it; `portcullis keygen` makes one",
        ),
        (
            true,
            ClientKind::ClaudeCode
            | ClientKind::ClaudeManaged
            | ClientKind::Cursor
            | ClientKind::Codex
            | ClientKind::Opencode,
        ) => {
            say(&format!(
                "note: the client finds its key in `{KEY}`; `portcullis keygen` makes one"
            ));
        }
        (false, _) => {}
    }
    match snippet(export.client, &settings.routes, &door, &export.config) {
        Ok(text) => print(&text),
        Err(error) => complain(&format!("could not name the command of the client: {error}")),
    }
}

/// The command of a client that starts servers as programs. Both paths are absolute, because the client has its own
/// working folder and `PATH`.
#[derive(Debug)]
struct StdioCommand {
    /// Path of this program.
    program: String,
    /// Path of the configuration.
    file: String,
}

impl StdioCommand {
    /// The command that starts this program with the configuration `file`.
    ///
    /// # Errors
    /// Where a path is not UTF-8: the formats of the clients cannot hold it, and another path would be another file.
    fn of(file: &Path) -> io::Result<Self> {
        Ok(Self { program: utf8_path(own_path()?)?, file: utf8_path(path::absolute(file)?)? })
    }
}

/// The text of a path; an error if it is not UTF-8.
fn utf8_path(path: PathBuf) -> io::Result<String> {
    path.into_os_string().into_string().map_err(|path| {
        io::Error::other(format!(
            "the path {path:?} is not UTF-8, so it cannot be written into the configuration of a client; use another path"
        ))
    })
}

/// The absolute path that this program was started by. A link is kept as it is, so that the client follows it to a
/// later version. If that path is not known, the path of the executable file.
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

/// The text for the configuration file of `client`, with one server for each route. `file` is the configuration of the
/// gateway, which a client that starts a program passes to it.
///
/// # Errors
/// For such a client, if the paths of its command cannot be determined or are not UTF-8.
pub(super) fn snippet(
    client: ClientKind,
    routes: &[RouteSettings],
    door: &ClientEndpoint,
    file: &Path,
) -> io::Result<String> {
    let routes = routes.iter().map(|route| (name(&route.path), &*route.path));
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
        ClientKind::ClaudeCode | ClientKind::ClaudeManaged => {
            json("mcpServers", &|path| http(Some("http"), path, &own))
        }
        ClientKind::Cursor => {
            json("mcpServers", &|path| http(None, path, &format!("${{env:{KEY}}}")))
        }
        ClientKind::Opencode => {
            json("mcp", &|path| http(Some("remote"), path, &format!("{{env:{KEY}}}")))
        }
        ClientKind::Vscode => {
            let mut whole =
                json("servers", &|path| http(Some("http"), path, "${input:portcullis-api-key}"));
            if let (true, Some(members)) = (door.keyed, whole.as_object_mut()) {
                let input = json!([{ "type": "promptString", "id": "portcullis-api-key",
                    "description": "API key of the MCP gateway", "password": true }]);
                members.insert("inputs".to_owned(), input);
            }
            whole
        }
        ClientKind::ClaudeDesktop => {
            let started = StdioCommand::of(file)?;
            json("mcpServers", &|path| {
                let mut server = json!({ "command": started.program,
                    "args": ["stdio", "-c", started.file, "--route", path] });
                if let (true, Some(members)) = (door.keyed, server.as_object_mut()) {
                    members.insert("env".to_owned(), json!({ KEY: "" }));
                }
                server
            })
        }
        ClientKind::Codex => {
            let server = |(name, path): (String, &str)| {
                let key = format!("bearer_token_env_var = \"{KEY}\"\n");
                let key = if door.keyed { key } else { String::new() };
                let (name, url) = (Value::from(name), Value::from(url(path)));
                format!("[mcp_servers.{name}]\nurl = {url}\n{key}")
            };
            return Ok(routes.map(server).collect::<Vec<_>>().join("\n"));
        }
    };
    Ok(format!("{whole:#}\n"))
}

/// Name of a route in a client's configuration.
fn name(path: &str) -> String {
    let name = path.trim_matches('/').replace('/', "-");
    if name.is_empty() { "portcullis".to_owned() } else { name }
}
