//! `portcullis import`: makes a configuration from the MCP servers that a client has configured. Nothing is started,
//! nothing is trusted, and no secret is printed or kept: a reference to a variable replaces it. Variables, headers and
//! tools whose names could be secrets are left out, and only their number is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use self::dialects::{ListedServer, listed};
use self::familiar::{SuspectServer, imitation};
use self::restrictions::{ToolRestriction, is_about_tools};
use self::runners::{RunTargets, Unpinned, inherited, module};
use self::secrets::{
    ArgPosition, PlaceholderFolders, SCHEMES, at_home, has_plain_references, is_command,
    is_flag_name, is_imported, is_imported_argument, is_plain, is_plain_argument, is_plain_around,
    is_plain_command, is_plain_folder, is_plain_name, is_plain_url, is_spaced_path,
    may_be_followed, placeholders, variable_name, without_placeholders,
};
use gateway::config::settings::{self, variables::replaced};
use gateway::{base::masking, net::egress};
use policy::definition::drift::visible;

use super::printable::in_a_line;
use super::{complain, print, say};

pub(super) mod secrets;
mod restrictions;
mod dialects;
mod runners;
mod familiar;

/// Most bytes of a client's file.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Beginning of an imported configuration: every user of this machine may call, as through the client before.
pub(super) const ANONYMOUS: &str = "apiVersion: portcullis.dev/v1\n\
    listeners:\n  - name: main\n    address: 127.0.0.1:8080\n    authentication: [anonymous]\n\
    identity:\n  anonymous:\n    groups: [local]\n";
/// Keys of a server that are converted, or that say nothing about what it is or may do.
const CONVERTED_KEYS: [&str; 32] = [
    "command",
    "args",
    "env",
    "environment",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "env_vars",
    "url",
    "type",
    "cwd",
    "envFile",
    "disabled",
    "enabled",
    "name",
    "description",
    "source",
    "trust",
    "id",
    "title",
    "icon",
    "iconPath",
    "gallery",
    "version",
    "required",
    "dev",
    "display_name",
    "bundled",
    "settings",
    "$schema",
    "note",
];
/// Keys of a server with bounds of time.
const TIMES: [&str; 9] = [
    "tool_timeout_ms",
    "connectionTimeout",
    "timeout",
    "tool_timeout_sec",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "initTimeout",
    "requestTimeout",
    "connectTimeout",
];
/// Keys of a server with ways to authenticate that are not converted.
const LOGINS: [&str; 8] = [
    "apiKey",
    "headersHelper",
    "oauth",
    "auth",
    "authProviderType",
    "authorization",
    "authentication",
    "scopes",
];
/// Parameters of URLs that let in anybody who knows them, although their names do not say so.
const CODES: [&str; 8] = ["code", "sig", "sas", "hash", "ticket", "nonce", "access", "id"];
/// The clients whose files are read, for messages.
const CLIENTS: &str = "a file of Claude Desktop, Claude Code, Cursor, VS Code, Codex, opencode, Gemini CLI, Zed, Continue, \
                       LibreChat or Goose has them under `mcpServers`, `servers`, `mcp_servers`, `mcp`, `context_servers` or \
                       `extensions`";
/// Name for an entry of the environment of a program, in messages.
const ENVIRONMENT: &str = "the environment variable";
/// Name for an entry of the HTTP headers to a server, in messages.
const HEADER: &str = "the header";

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The configuration file of the client. Default: the place where the client usually has it.
    file: Option<PathBuf>,
    /// The client that the file belongs to.
    #[arg(long, value_enum, default_value_t = ImportClient::Auto)]
    from: ImportClient,
    /// The file to write the configuration to. It must not exist. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Leave out servers that a package runner starts without a version, so that the latest published version would
    /// run. Without this option they are imported with a warning.
    #[arg(long)]
    require_pinned: bool,
    /// Import this server although it imitates a well-known one: its name, package or host differs by one letter, looks
    /// the same, or belongs to another publisher. Can be given more than once.
    #[arg(long, value_name = "NAME")]
    accept: Vec<String>,
}

/// Client that a configuration file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportClient {
    /// Detect the client from the content.
    Auto,
    /// Claude Desktop: `claude_desktop_config.json` in its own folder.
    ClaudeDesktop,
    /// Claude Code: `.mcp.json`, `~/.claude.json`, or `managed-mcp.json`.
    ClaudeCode,
    /// Cursor: `.cursor/mcp.json` of a project or of the user.
    Cursor,
    /// VS Code: `.vscode/mcp.json` of a workspace.
    Vscode,
    /// Codex: `~/.codex/config.toml`, or the one in `/etc/codex`.
    Codex,
    /// opencode: `opencode.json`, or `opencode.jsonc` of the user.
    Opencode,
}

impl ImportArgs {
    /// Imports the servers from the file of any client, with the default options.
    pub(super) const fn of(file: PathBuf) -> Self {
        let accept = Vec::new();
        let (from, write, require_pinned) = (ImportClient::Auto, None, false);
        Self { file: Some(file), from, write, require_pinned, accept }
    }
}

impl ImportClient {
    /// Where the client usually has its file, below the home of the user or the current folder.
    fn usual(self) -> Vec<PathBuf> {
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let config =
            env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), Into::into);
        let here = PathBuf::from(".");
        match self {
            Self::Auto => [
                Self::ClaudeCode,
                Self::ClaudeDesktop,
                Self::Cursor,
                Self::Vscode,
                Self::Codex,
                Self::Opencode,
            ]
            .into_iter()
            .flat_map(Self::usual)
            .collect(),
            Self::ClaudeDesktop => vec![
                home.join("Library/Application Support/Claude/claude_desktop_config.json"),
                config.join("Claude/claude_desktop_config.json"),
            ],
            Self::ClaudeCode => vec![
                here.join(".mcp.json"),
                home.join(".claude.json"),
                "/etc/claude-code/managed-mcp.json".into(),
                "/Library/Application Support/ClaudeCode/managed-mcp.json".into(),
            ],
            Self::Cursor => vec![here.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            Self::Vscode => vec![here.join(".vscode/mcp.json")],
            Self::Codex => vec![home.join(".codex/config.toml"), "/etc/codex/config.toml".into()],
            Self::Opencode => vec![
                here.join("opencode.json"),
                config.join("opencode/opencode.json"),
                config.join("opencode/opencode.jsonc"),
            ],
        }
    }
}

/// A server from the file of a client, with secrets replaced by variables.
#[derive(Debug, Default)]
struct ImportedServer {
    url: Option<String>,
    old: bool,
    /// The command as written, with references to variables.
    command: Option<String>,
    args: Vec<String>,
    env: Vec<(String, ImportedValue)>,
    headers: Vec<(String, ImportedValue)>,
    /// The variable with the credential for `Authorization`, and the scheme before it.
    token: Option<(String, &'static str)>,
    directory: Option<String>,
    /// The tools that may be called.
    tools: ToolRestriction,
    /// The well-known server that this one imitates.
    like: Option<familiar::Lookalike>,
    /// The package or image without an exact version.
    unpinned: Option<UnpinnedServer>,
}

/// What a server runs without an exact version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UnpinnedServer {
    /// A package or an image, as written.
    Named(String),
    /// One that cannot be seen.
    Hidden,
}

/// The client's file, as far as its servers depend on it.
#[derive(Debug, Default)]
struct ClientFile {
    /// What its placeholders refer to.
    places: PlaceholderFolders,
    /// Folder that relative paths refer to.
    folder: PathBuf,
    /// The inputs that VS Code asks its user for: descriptions by id.
    inputs: BTreeMap<String, String>,
    /// The variables that the file names or refers to. Variables that are made up are called otherwise.
    taken: BTreeSet<String>,
    /// Whether it belongs to Gemini CLI, for which a `url` is one of HTTP+SSE.
    is_gemini: bool,
}

impl ClientFile {
    fn of(file: &Path, root: &Value) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        let kept_in = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // An editor has a folder for the file within the workspace; Claude Code has the file in the workspace itself.
        let workspace = match kept_in {
            ".vscode" | ".cursor" | ".gemini" | ".roo" | ".zed" => {
                folder.parent().map(Path::to_owned)
            }
            _ if file.file_name().is_some_and(|name| name == ".mcp.json") => Some(folder.clone()),
            _ => None,
        };
        let mut taken = dialects::taken(root);
        let (mut inputs, mut names) = (BTreeMap::new(), BTreeMap::new());
        let lists = ["/inputs", "/mcp/inputs"].into_iter();
        for input in lists.filter_map(|at| root.pointer(at)?.as_array()).flatten() {
            let text = |key: &str| input.get(key).and_then(Value::as_str);
            let about = text("description").unwrap_or("what the client asks its user for");
            let Some(id) = text("id") else { continue };
            // What a variable of the environment is called is not asked for under the same name.
            let mut name = variable_name(id);
            while !names.contains_key(id) && !taken.insert(name.clone()) {
                name = format!("INPUT_{name}");
            }
            inputs.entry(name.clone()).or_insert_with(|| about.to_owned());
            names.entry(id.to_owned()).or_insert(name);
        }
        let text = workspace.as_ref().and_then(|folder| folder.to_str()).map(str::to_owned);
        let places = PlaceholderFolders { workspace: text, inputs: names };
        let is_gemini = kept_in == ".gemini"
            || file.file_name().is_some_and(|name| name == "gemini-extension.json");
        Self { places, folder: workspace.unwrap_or(folder), inputs, taken, is_gemini }
    }
}

/// Value of an environment variable or header in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ImportedValue {
    /// A literal value that is no secret.
    Plain(String),
    /// A literal value with references to variables.
    Mixed(String),
    /// The name of the variable that holds the value.
    Variable(String),
}

/// An entry of the environment or of the headers of a server.
#[derive(Clone, Copy, Debug)]
struct ClientEntry<'a> {
    /// Name of the server in the configuration.
    server: &'a str,
    /// Name of the environment variable or of the header.
    name: &'a str,
    /// Kind of the entry: [`ENVIRONMENT`] or [`HEADER`].
    what: &'static str,
    /// Scheme that preceded the value and that the gateway adds: one of [`SCHEMES`].
    scheme: Option<&'static str>,
}

impl ClientEntry<'_> {
    fn is_authorization(&self) -> bool {
        self.what == HEADER && self.name.eq_ignore_ascii_case("authorization")
    }

    /// Describes the value to set its variable to.
    fn wanted(&self) -> String {
        let Self { server, what, .. } = self;
        let name = visible(self.name);
        match self.scheme {
            None => format!("the value of {what} `{name}` of `{server}`"),
            Some(scheme) => format!(
                "what stands after `{scheme}` in {what} `{name}` of `{server}`, without `{scheme}`: the gateway writes that"
            ),
        }
    }
}

/// Messages about the import, and the variables that it needs.
#[derive(Debug, Default)]
struct ImportReport {
    /// The client's file that is imported.
    file: ClientFile,
    warnings: Vec<String>,
    notes: Vec<String>,
    /// The variables that have to be set, with a description of each value.
    variables: BTreeMap<String, String>,
}

impl ImportReport {
    /// Creates a variable for `name` of `server`, and returns its name.
    fn variable(&mut self, server: &str, name: &str, what: String) -> String {
        let joined = format!("{server}_{name}").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let base = variable_name(&joined.to_ascii_uppercase());
        let mut own = base.clone();
        for n in 2.. {
            let is_other = self.variables.get(&own).is_some_and(|known| *known != what);
            if !is_other && !self.file.taken.contains(&own) {
                break;
            }
            own = format!("{base}_{n}");
        }
        self.variables.insert(own.clone(), what);
        own
    }

    /// Notes that `count` entries of `key` were left out because their names could be secrets. The names are not
    /// repeated.
    fn left_out(&mut self, server: &str, count: usize, key: &str) {
        if count > 0 {
            self.notes.push(format!(
                "`{server}`: {count} of `{key}` left out, because a name could be a secret; \
                 add by hand what is none"
            ));
        }
    }

    /// The variable that the file names for `name` of `server`, or a new one if its name could be a secret.
    fn known(&mut self, server: &str, name: &str, variable: &str, what: String) -> String {
        if !is_plain_name(variable) || variable_name(variable) != variable {
            return self.variable(server, name, what);
        }
        self.variables.entry(variable.to_owned()).or_insert(what);
        variable.to_owned()
    }

    /// Adds those of the variables in `text` that have no default value there.
    fn named_in(&mut self, text: &str, variables: &[String]) {
        let open = variables.iter().filter(|name| text.contains(&format!("${{{name}}}")));
        self.named(&open.cloned().collect::<Vec<_>>());
    }

    /// Adds variables that the file refers to, because they have to be set, too.
    fn named(&mut self, variables: &[String]) {
        // These are set in every environment that starts programs.
        let unknown = variables.iter().filter(|name| !["HOME", "PATH"].contains(&name.as_str()));
        for name in unknown {
            let about = self.file.inputs.get(name).map_or_else(
                || "what the client takes from its environment".to_owned(),
                |about| visible(about).to_string(),
            );
            self.variables.entry(name.clone()).or_insert(about);
        }
    }
}

pub(super) fn run(import: &ImportArgs) -> ExitCode {
    match imported(import) {
        Ok(code) => code,
        Err(error) => complain(&error),
    }
}

/// Imports a file, and returns the configuration as text. Reports what was changed and left out, and which variables
/// have to be set.
pub(super) fn read(import: &ImportArgs) -> Result<String, String> {
    let usual = || import.from.usual().into_iter().find(|path| path.is_file());
    let file = import.file.clone().or_else(usual);
    let file = file.ok_or("no client has a configuration here; name the file")?;
    let shown = file.display();
    let length =
        fs::metadata(&file).map_err(|error| format!("could not read `{shown}`: {error}"))?;
    if length.len() > MAX_FILE {
        return Err(format!("`{shown}` is longer than any configuration"));
    }
    let text = fs::read_to_string(&file);
    let text = text.map_err(|error| format!("could not read `{shown}`: {error}"))?;
    let (yaml, told) = converted(import, &file, &text)?;
    told.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    told.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let Some(yaml) = yaml else {
        return Err(match told.notes.is_empty() {
            true => format!("`{shown}` has no server that could be imported: {CLIENTS}"),
            false => format!("`{shown}` has no server that could be imported"),
        });
    };
    for (variable, what) in &told.variables {
        say(&format!("note: set `{variable}` to {what}"));
    }
    Ok(yaml)
}

/// Converts the text of a client's file. There is no configuration if no server could be imported.
fn converted(
    import: &ImportArgs,
    file: &Path,
    text: &str,
) -> Result<(Option<String>, ImportReport), String> {
    let is_toml =
        import.from == ImportClient::Codex || file.extension().is_some_and(|end| end == "toml");
    let is_yaml = file.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let root = match (is_toml, is_yaml) {
        (true, _) => read_toml(text),
        (false, true) => settings::yaml_value(text),
        (false, false) => read_json(text),
    };
    let root = root.map_err(|error| format!("`{}`: {error}", file.display()))?;
    let mut told = ImportReport { file: ClientFile::of(file, &root), ..ImportReport::default() };
    let mut servers = BTreeMap::new();
    for ListedServer { name, entry } in listed(&root) {
        let is_shown = !could_be_secret(&name);
        let mut own = if is_shown { clean(&name) } else { "server".to_owned() };
        while servers.contains_key(&own) {
            own.push('x');
        }
        let clean = own.clone();
        // A server that is left out needs no variables.
        let before = told.variables.clone();
        let accepted = import.accept.iter().any(|one| *one == name || *one == clean);
        let called = if is_shown { &name } else { &clean };
        let read = entry.map_err(str::to_owned);
        match read.and_then(|server| found(&clean, called, &server, &root, &mut told)) {
            Ok(ImportedServer { like: Some(like), .. }) if !accepted => {
                told.variables = before;
                told.notes.push(format!(
                    "`{clean}` was left out: {like}; if it is the one that you mean, import with \
                     --accept {clean}"
                ));
            }
            Ok(server) if import.require_pinned && server.unpinned.is_some() => {
                told.variables = before;
                told.notes.push(match &server.unpinned {
                    Some(UnpinnedServer::Named(package)) if variable_alone(package).is_none() => format!(
                        "`{clean}` was left out: `{package}` names no version, so whatever was published last would run"
                    ),
                    Some(UnpinnedServer::Hidden) => format!(
                        "`{clean}` was left out: which package or image it runs cannot be seen, so nobody knows its version here"
                    ),
                    Some(UnpinnedServer::Named(_)) | None => format!(
                        "`{clean}` was left out: the package that it runs is not in plain words, so nobody knows its version here"
                    ),
                });
            }
            Ok(server) => {
                if !is_shown {
                    told.notes.push(format!(
                        "a server is called `{own}` here, because its name could be a secret"
                    ));
                } else if own != name {
                    told.notes.push(format!("`{}` is called `{own}` here", name.escape_debug()));
                }
                remarks(&own, &server, &mut told);
                servers.insert(own, server);
            }
            Err(why) => {
                told.variables = before;
                told.notes.push(format!("`{clean}` was left out: {why}"));
            }
        }
    }
    let yaml = (!servers.is_empty()).then(|| written(&servers, &told, file));
    Ok((yaml, told))
}

fn imported(import: &ImportArgs) -> Result<ExitCode, String> {
    let yaml = read(import)?;
    say(
        "note: every user and every program of this machine may call at 127.0.0.1:8080, without a key, and there is no `ops` \
         listener: `portcullis init --from FILE` writes the same servers with both",
    );
    let Some(to) = &import.write else { return Ok(print(&yaml)) };
    let mut options = fs::OpenOptions::new();
    let written = options.write(true).create_new(true).open(to);
    let written = written.and_then(|mut out| out.write_all(yaml.as_bytes()));
    written.map_err(|error: io::Error| format!("could not write `{}`: {error}", to.display()))?;
    say(&format!(
        "written to `{}`: look at it, then approve what the servers offer:",
        to.display()
    ));
    say(&format!(
        "  portcullis pin -c {0} && portcullis pin approve -c {0} --by YOU",
        to.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn read_toml(text: &str) -> Result<Value, String> {
    toml::from_str::<Value>(text).map_err(|error| error.message().to_owned())
}

/// Parses JSON with the comments and trailing commas that editors allow.
fn read_json(text: &str) -> Result<Value, String> {
    #[expect(clippy::disallowed_methods, reason = "a file of the user, which only becomes text")]
    serde_json::from_str(&plain_json(text)).map_err(|error| error.to_string())
}

fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(_)) if quoted => {
                out.push(c);
                out.extend(rest.next());
            }
            ('"', _) => {
                quoted = !quoted;
                out.push(c);
            }
            ('/', Some('/')) if !quoted => while rest.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) if !quoted => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            (']' | '}', _) if !quoted => {
                let kept = out.trim_end().len();
                if out.get(..kept).is_some_and(|kept| kept.ends_with(',')) {
                    out.truncate(kept - 1);
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// The variable that an argument consists of, with or without a flag before it: `${NAME}`, `--from=${NAME}`.
fn variable_alone(argument: &str) -> Option<&str> {
    let value = argument
        .split_once("=$")
        .map_or(argument, |(flag, _)| argument.get(flag.len() + 1..).unwrap_or_default());
    value.strip_prefix("${")?.strip_suffix('}')
}

/// The warning about the program of a server that runs a package without a version; `None` if it names one, or runs
/// none.
pub(super) fn unpinned_warning(name: &str, command: &str, args: &[String]) -> Option<String> {
    RunTargets::of(command, args).unpinned(args).map(|unpinned| match unpinned {
        Unpinned::Named(package) => of_unpinned(name, &visible(package)),
        Unpinned::Hidden => of_hidden(name),
    })
}

fn of_hidden(name: &str) -> String {
    format!(
        "`{name}`: which package or image it runs cannot be seen in its arguments, so nobody knows its version here; \
         name the package with the version that you have looked at as an argument of its runner"
    )
}

fn of_unpinned(name: &str, package: &str) -> String {
    format!(
        "`{name}`: `{package}` names no version, so whatever was published last runs, and its definitions change with it; \
         write the version that you have looked at"
    )
}

/// Adds warnings and notes about a server that is imported.
fn remarks(name: &str, server: &ImportedServer, told: &mut ImportReport) {
    if let Some(package) = &server.unpinned {
        let variable = match package {
            UnpinnedServer::Named(package) => variable_alone(package),
            UnpinnedServer::Hidden => None,
        };
        told.warnings.push(match (package, variable) {
            (_, Some(variable)) => format!(
                "`{name}`: the package that it runs is to stand in the variable `{variable}`, so nobody knows its version here; \
                 set it to the package with the version that you have looked at, or whatever was published last runs"
            ),
            (UnpinnedServer::Named(package), None) => of_unpinned(name, package),
            (UnpinnedServer::Hidden, None) => of_hidden(name),
        });
    }
    for (count, key) in &server.tools.hidden {
        told.left_out(name, *count, key);
    }
    told.notes.extend(server.tools.remarks.iter().map(|remark| format!("`{name}`: {remark}")));
    if !server.tools.denied.is_empty() {
        told.notes.push(format!(
            "`{name}`: the tools that the client does not use are forbidden; the rule `forbidden-{name}` says so"
        ));
    }
    match server.tools.allowed.as_deref() {
        None => {}
        Some([]) => told.notes.push(format!(
            "`{name}`: none of the tools that the client allows could be taken along, so nothing is allowed; \
             write a rule for those that you mean"
        )),
        Some(_) => told.notes.push(format!(
            "`{name}`: the tools that the client allows are allowed, and no other tools, no prompts and no \
             resources; the rule `local-{name}` says so"
        )),
    }
}

/// Whether a client does not start a server. Clients in JavaScript take what is neither empty nor zero for true.
fn is_switched_off(server: &Map<String, Value>) -> bool {
    let says = |value: &Value| match value {
        Value::Bool(is) => Some(*is),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) => match &*text.trim().to_ascii_lowercase() {
            "" | "false" | "no" | "off" | "0" => Some(false),
            _ => Some(true),
        },
        Value::Array(_) | Value::Object(_) => Some(true),
        Value::Null => None,
    };
    let is_said = |name: &str, is: bool| {
        server.iter().any(|(key, value)| key.eq_ignore_ascii_case(name) && says(value) == Some(is))
    };
    is_said("disabled", true) || is_said("enabled", false)
}

/// Converts a server of a client. `name` is its name in the configuration, and `called` the name that the client gives
/// it.
fn found(
    name: &str,
    called: &str,
    server: &Map<String, Value>,
    root: &Value,
    told: &mut ImportReport,
) -> Result<ImportedServer, String> {
    if is_switched_off(server) {
        return Err("it is switched off".to_owned());
    }
    let text = |key: &str| server.get(key).and_then(Value::as_str).map(str::to_owned);
    // opencode has the program and its arguments in one list.
    let mut line = texts(server, "command")?;
    let command = match text("command") {
        Some(command) => Some(command),
        None if line.is_empty() => None,
        None => Some(line.remove(0)),
    };
    line.extend(texts(server, "args")?);
    let url = text("url").filter(|url| !url.is_empty());
    let kind = text("type").unwrap_or_default().to_ascii_lowercase();
    refusal(&kind, command.as_deref(), url.as_deref())?;
    let (mut env, mut headers, mut token) = (Vec::new(), Vec::new(), None);
    if command.is_some() {
        for key in ["env", "environment"] {
            env.extend(values(name, server, key, told));
        }
    } else {
        (headers, token) = shown(name, server, told);
    }
    let command = command.map(|command| at_home(&command));
    if let Some(command) = command.as_deref().filter(|command| !is_command(command)) {
        if command.contains('<') && command.contains('>') {
            return Err(
                "its command is not filled in: what stands between `<` and `>` is to be replaced"
                    .to_owned(),
            );
        }
        if !(server.contains_key("args") && is_spaced_path(command)) {
            return Err("its command is more than a program; give the rest in `args`".to_owned());
        }
    }
    // The runner is recognized by its name even if the command is written as a variable.
    let program = command.as_deref().unwrap_or_default();
    let targets = RunTargets::of(program, &line);
    let args = arguments(name, program, server, &line, &targets, told);
    if command.is_some() {
        let of_container = inherited(&targets, &line);
        env.extend(inherited_variables(name, server, &of_container, &env, told));
    }
    if url.as_deref().is_some_and(|url| url.contains('@')) {
        return Err("there is a credential in its URL; show it in a header".to_owned());
    }
    let url = url.filter(|_| command.is_none());
    // The comparison needs the values before variables replace them.
    let like = imitation(&SuspectServer {
        name: called,
        command: command.as_deref(),
        args: &line,
        url: url.as_deref(),
    });
    let old = url.as_deref().is_some_and(|url| is_old(name, &kind, url, told));
    let url = url.map(|url| address(name, &url, told));
    let directory = match text("cwd") {
        Some(path) if command.is_some() => Some(directory(name, &path, told)),
        Some(_) => None,
        None => command.as_deref().and_then(|command| usual_directory(name, command, &line, told)),
    };
    not_taken(name, server, told);
    let unpinned = targets.unpinned(&args).map(|unpinned| match unpinned {
        Unpinned::Named(package) => UnpinnedServer::Named(package.to_owned()),
        Unpinned::Hidden => UnpinnedServer::Hidden,
    });
    Ok(ImportedServer {
        old,
        url,
        unpinned,
        command: command.as_deref().map(|command| written_command(name, command, told)),
        args,
        env,
        headers,
        token,
        directory,
        tools: ToolRestriction::of(called, server, root),
        like,
    })
}

/// The variables of a server's environment.
fn values(
    name: &str,
    server: &Map<String, Value>,
    key: &str,
    told: &mut ImportReport,
) -> Vec<(String, ImportedValue)> {
    let members = plain_members(name, server, key, told).into_iter();
    let member = |(variable, value): (&String, &Value)| {
        let entry = ClientEntry { server: name, name: variable, what: ENVIRONMENT, scheme: None };
        (variable.clone(), said(entry, &text_of(value), told))
    };
    members.map(member).collect()
}

/// The text of a value that may be a number or a boolean.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The name and the value of a header.
type ImportedHeader = (String, ImportedValue);

/// The headers that a server is shown, and the variable with the credential for `Authorization`, with the scheme before
/// it.
fn shown(
    name: &str,
    server: &Map<String, Value>,
    told: &mut ImportReport,
) -> (Vec<ImportedHeader>, Option<(String, &'static str)>) {
    let mut headers = Vec::new();
    let mut token = text_of_key(server, "bearer_token_env_var").map(|variable| {
        let what = format!("the token of `{name}`");
        (told.known(name, "token", variable, what), "Bearer ")
    });
    let members = ["headers", "http_headers"].map(|key| plain_members(name, server, key, told));
    for (header, value) in members.into_iter().flatten() {
        let value = text_of(value);
        let mut entry = ClientEntry { server: name, name: header, what: HEADER, scheme: None };
        if !entry.is_authorization() {
            headers.push((header.clone(), said(entry, &value, told)));
            continue;
        }
        // The gateway adds the scheme itself.
        let scheme = SCHEMES.into_iter().find(|scheme| value.starts_with(scheme));
        entry.scheme = scheme;
        let bare = scheme.and_then(|scheme| value.strip_prefix(scheme)).unwrap_or(&value);
        let (_, variables) = placeholders(bare, &told.file.places);
        let is_alone = without_placeholders(bare).is_empty() && has_plain_references(bare);
        // A credential is one variable, which has to be set.
        let variable = match &variables[..] {
            [variable] if is_alone => {
                told.named(&variables);
                variable.clone()
            }
            _ => told.variable(name, header, entry.wanted()),
        };
        token = Some((variable, scheme.unwrap_or_default()));
    }
    for (header, value) in referred_headers(name, server, told) {
        match value {
            ImportedValue::Variable(variable) if header.eq_ignore_ascii_case("authorization") => {
                token = Some((variable, ""));
            }
            value => headers.push((header, value)),
        }
    }
    headers.retain(|(header, _)| {
        let lower = header.to_ascii_lowercase();
        let is_own = settings::is_own_header(&lower) || lower.starts_with("mcp-");
        if is_own {
            told.notes.push(format!(
                "`{name}`: its header `{}` was left out: the gateway sets it itself, or does not send it",
                visible(header)
            ));
        }
        !is_own
    });
    (headers, token)
}

/// The text under a key of a server.
fn text_of_key<'a>(server: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    server.get(key).and_then(Value::as_str)
}

/// Refuses what no gateway could reach, with the reason.
fn refusal(kind: &str, command: Option<&str>, url: Option<&str>) -> Result<(), String> {
    let why = match (kind, command, url) {
        ("sdk" | "builtin" | "platform" | "frontend" | "inline_python", ..) => {
            format!("its type is `{kind}`: its client runs it within itself")
        }
        ("ws" | "websocket", ..) => {
            "it is reached over WebSocket, which is no transport of MCP".to_owned()
        }
        (_, None, Some(url)) if url.starts_with("ws://") || url.starts_with("wss://") => {
            "it is reached over WebSocket, which is no transport of MCP".to_owned()
        }
        (_, None | Some(""), None) => "it has neither a command nor a URL".to_owned(),
        _ => return Ok(()),
    };
    Err(why)
}

/// Whether a server speaks HTTP+SSE: by its type, by the client, or, with a note, by its URL.
fn is_old(name: &str, kind: &str, url: &str, told: &mut ImportReport) -> bool {
    if !kind.is_empty() && kind != "remote" {
        return kind == "sse";
    }
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let is_old = told.file.is_gemini || path.ends_with("/sse");
    if is_old {
        told.notes.push(format!(
            "`{name}`: taken for a server of HTTP+SSE, because of its URL and its client; without `transport` it is one of \
             Streamable HTTP"
        ));
    }
    is_old
}

/// The variables that a program inherits from the environment of its client, and has none of in its entry.
fn inherited_variables(
    name: &str,
    server: &Map<String, Value>,
    of_container: &[&str],
    known: &[(String, ImportedValue)],
    told: &mut ImportReport,
) -> Vec<(String, ImportedValue)> {
    let listed = server.get("env_vars").and_then(Value::as_array).into_iter().flatten();
    let listed = listed.map(|one| one.get("name").unwrap_or(one).as_str().unwrap_or_default());
    let is_usable =
        |variable: &&str| is_plain_name(variable) && variable_name(variable) == **variable;
    let (mut names, odd): (Vec<&str>, Vec<&str>) = listed.partition(is_usable);
    told.left_out(name, odd.len(), "env_vars");
    // A container's variable that is called otherwise was replaced among the arguments.
    names.extend(of_container.iter().copied().filter(is_usable));
    let mut seen: BTreeSet<&str> = known.iter().map(|(variable, _)| variable.as_str()).collect();
    let own = server.get("env").and_then(Value::as_object);
    names.retain(|variable| {
        seen.insert(variable) && own.is_none_or(|env| !env.contains_key(*variable))
    });
    let what =
        |variable: &str| format!("what the client takes from its environment for `{variable}`");
    let variable = |variable: &str| {
        told.variables.entry(variable.to_owned()).or_insert_with(|| what(variable));
        (variable.to_owned(), ImportedValue::Variable(variable.to_owned()))
    };
    names.into_iter().map(variable).collect()
}

/// The folder of the project for a server of a project's file whose command or arguments are relative to it.
fn usual_directory(
    name: &str,
    command: &str,
    line: &[String],
    told: &mut ImportReport,
) -> Option<String> {
    let is_relative = |text: &str| {
        let value = text.split_once('=').map_or(text, |(_, value)| value);
        let is_file = value.rsplit_once('.').is_some_and(|(name, end)| {
            !name.is_empty()
                && ["js", "mjs", "cjs", "ts", "py", "jar", "sh", "json", "yaml", "yml", "env"]
                    .contains(&end)
        });
        let is_rooted = value.starts_with(['/', '~', '$', '@', '-']) || value.contains(':');
        let is_below = value == "."
            || value == ".env"
            || ["./", "../", ".\\"].iter().any(|b| value.starts_with(b));
        !is_rooted && (is_below || is_file) || text.starts_with("--") && text.ends_with("-cwd")
    };
    let is_own = command.contains('/') && !command.starts_with(['/', '~', '$']);
    if !is_own && !line.iter().any(|text| is_relative(text)) {
        return None;
    }
    let folder = told.file.places.workspace.as_ref().map(|folder| folder.replace("${", "$${"));
    if folder.is_none() {
        told.notes.push(format!(
            "`{name}`: its command or its arguments depend on the folder that its client starts it in; name it as `workingDirectory`"
        ));
    }
    folder
}

/// Notes what of a server's entry was not converted.
fn not_taken(name: &str, server: &Map<String, Value>, told: &mut ImportReport) {
    if server.contains_key("envFile") {
        told.notes.push(format!(
            "`{name}`: its `envFile` is not read; set the variables in it, and name them under `env`"
        ));
    }
    let is_used = |value: &Value| *value != false && *value != json!({}) && *value != json!([]);
    for key in LOGINS.iter().filter(|key| server.get(**key).is_some_and(is_used)) {
        told.notes.push(format!(
            "`{name}`: its `{key}` was left out; the gateway shows the server what stands under `credential` or `headers`"
        ));
    }
    for key in TIMES.iter().filter(|key| server.contains_key(**key)) {
        told.notes.push(format!(
            "`{name}`: its `{key}` was left out; how long a server may take is `limits.responseTimeout` of the gateway"
        ));
    }
    let is_known = |key: &str| {
        CONVERTED_KEYS.contains(&key)
            || TIMES.contains(&key)
            || LOGINS.contains(&key)
            || is_about_tools(key)
    };
    let is_program = server.contains_key("command");
    let of_other = match is_program {
        true => &["headers", "http_headers", "env_http_headers", "bearer_token_env_var"][..],
        false => &["env", "environment", "env_vars", "args", "cwd"],
    };
    for key in of_other.iter().filter(|key| server.get(**key).is_some_and(is_used)) {
        let what = if is_program { "a program" } else { "a server with a URL" };
        told.notes.push(format!("`{name}`: its `{key}` was left out, because it is {what}"));
    }
    let others = server.keys().filter(|key| !is_known(key));
    let (plain, odd): (Vec<&String>, Vec<&String>) = others.partition(|key| is_plain_name(key));
    if !plain.is_empty() || !odd.is_empty() {
        let mut named: Vec<String> = plain.iter().map(|key| format!("`{key}`")).collect();
        if !odd.is_empty() {
            named.push(format!("{} more", odd.len()));
        }
        told.notes.push(format!("`{name}`: not understood and left out: {}", named.join(", ")));
    }
}

/// Converts the arguments of a program. What each of them is depends on the runner.
fn arguments(
    name: &str,
    program: &str,
    server: &Map<String, Value>,
    line: &[String],
    targets: &RunTargets<'_>,
    told: &mut ImportReport,
) -> Vec<String> {
    let module = module(program, line);
    let own: Vec<&str> = ["env", "environment"]
        .into_iter()
        .filter_map(|key| server.get(key)?.as_object())
        .flat_map(|env| env.keys().map(String::as_str))
        .collect();
    let before = iter::once(None).chain(line.iter().map(|arg| Some(arg.as_str())));
    let args = line.iter().zip(before).enumerate();
    let args = args.map(|(n, (text, before))| {
        let at = match targets.positions.get(&n) {
            Some(at) => *at,
            None if module == Some(n) => ArgPosition::Package,
            None => before.map_or(ArgPosition::First, ArgPosition::After),
        };
        match is_own_reference(text, &own) {
            true => text.replace("${", "$${"),
            false => argument(name, &ClientArgument { place: n, at, before, text }, told),
        }
    });
    args.collect()
}

/// Whether an argument refers to nothing but variables in the environment of the server itself, such as
/// `Authorization:${AUTH_HEADER}` of `mcp-remote`. The program puts their values there.
fn is_own_reference(text: &str, own: &[&str]) -> bool {
    let mut all = 0;
    let mut known = 0;
    let bare = replaced(text, |inner| {
        all += 1;
        known += usize::from(own.contains(&inner) && is_plain_name(inner));
        String::new()
    });
    all > 0 && all == known && !text.contains("$${") && is_plain_around("", &bare)
}

/// The strings in a list of a server; empty if there is no list. Other arguments than texts and numbers are refused,
/// because the rest would mean something else.
fn texts(server: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let list = match server.get(key) {
        Some(Value::Array(list)) => list,
        Some(_) if key == "args" => return Err("its `args` are no list".to_owned()),
        Some(_) | None => return Ok(Vec::new()),
    };
    let text = |item: &Value| match item {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("its `{key}` has an item that is no text")),
    };
    list.iter().map(text).collect()
}

/// The members of a server's object whose names are no secrets. Notes how many others were left out.
fn plain_members<'a>(
    name: &str,
    server: &'a Map<String, Value>,
    key: &str,
    told: &mut ImportReport,
) -> Vec<(&'a String, &'a Value)> {
    let members = server.get(key).and_then(Value::as_object).into_iter().flatten();
    let (plain, odd): (Vec<_>, Vec<_>) = members.partition(|(member, _)| is_plain_name(member));
    told.left_out(name, odd.len(), key);
    plain
}

/// The headers whose values the client reads from variables.
fn referred_headers(
    name: &str,
    server: &Map<String, Value>,
    told: &mut ImportReport,
) -> Vec<(String, ImportedValue)> {
    let mut headers = Vec::new();
    for (header, variable) in plain_members(name, server, "env_http_headers", told) {
        let variable = variable.as_str().unwrap_or_default();
        let what = format!("the value of the header `{}` of `{name}`", visible(header));
        headers.push((
            header.clone(),
            ImportedValue::Variable(told.known(name, header, variable, what)),
        ));
    }
    headers
}

/// The command of a server as written, or a variable if it is not made of plain words.
fn written_command(server: &str, command: &str, told: &mut ImportReport) -> String {
    if is_plain_command(command) {
        let (text, variables) = placeholders(command, &told.file.places);
        told.named(&variables);
        return text;
    }
    let variable = told.variable(server, "command", format!("the command of `{server}`"));
    format!("${{{variable}}}")
}

/// The URL of a server, or a variable if the URL could be a credential.
fn address(server: &str, url: &str, told: &mut ImportReport) -> String {
    let bare = without_placeholders(url);
    if has_plain_references(url) && (bare.is_empty() || is_plain_url(&bare)) {
        let (url, variables) = placeholders(url, &told.file.places);
        told.named(&variables);
        return url;
    }
    if let Some(url) = with_parameters(server, url, told) {
        return url;
    }
    let variable = told.variable(server, "url", format!("the URL of `{server}`"));
    format!("${{{variable}}}")
}

/// A URL with parameters, in which a variable replaces each value that could be a secret; `None` if the rest of it
/// cannot be written down.
fn with_parameters(server: &str, url: &str, told: &mut ImportReport) -> Option<String> {
    let (address, query) = url.split_once('?')?;
    let is_plain_key = |key: &str| {
        is_plain_name(key)
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    let bare = without_placeholders(address);
    let parameters: Option<Vec<_>> = query.split('&').map(|one| one.split_once('=')).collect();
    let parameters = parameters?;
    let is_known = has_plain_references(url) && (bare.is_empty() || is_plain_url(&bare));
    if !is_known || url.contains('#') || !parameters.iter().all(|(key, _)| is_plain_key(key)) {
        return None;
    }
    let (mut out, variables) = placeholders(address, &told.file.places);
    told.named(&variables);
    for (n, (key, value)) in parameters.into_iter().enumerate() {
        let (reference, variables) = placeholders(value, &told.file.places);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/".contains(c);
        let is_harmless = !CODES.contains(&&*key.to_ascii_lowercase())
            && is_imported(key, value)
            && value.chars().all(plain);
        let value = if value.is_empty() || is_harmless {
            value.to_owned()
        } else if !variables.is_empty() && without_placeholders(value).is_empty() {
            told.named(&variables);
            reference
        } else {
            let what = format!("the value of `{key}` in the URL of `{server}`");
            format!("${{{}}}", told.variable(server, key, what))
        };
        out.push(if n == 0 { '?' } else { '&' });
        out.push_str(&format!("{key}={value}"));
    }
    Some(out)
}

/// Converts a value of the environment or a header. The value of a secret is never kept.
fn said(entry: ClientEntry<'_>, value: &str, told: &mut ImportReport) -> ImportedValue {
    let ClientEntry { server, name, .. } = entry;
    let value = &at_home(value);
    let (rest, variables) = placeholders(value, &told.file.places);
    let bare = without_placeholders(value);
    let known = has_plain_references(value);
    if let ([variable], true) = (&variables[..], rest == format!("${{{}}}", variables.join("")))
        && known
    {
        told.named(&variables);
        return ImportedValue::Variable(variable.clone());
    }
    // A header transmits its value to a server, so the stricter check applies.
    let is_harmless = if entry.what == ENVIRONMENT { is_imported } else { is_plain };
    if bare == *value && is_harmless(name, value) {
        return ImportedValue::Plain(value.clone());
    }
    if known && bare != *value && (bare.is_empty() || is_plain_around(name, &bare)) {
        told.named_in(&rest, &variables);
        return ImportedValue::Mixed(rest);
    }
    ImportedValue::Variable(told.variable(server, name, entry.wanted()))
}

/// An argument of a server's program.
#[derive(Clone, Copy, Debug)]
struct ClientArgument<'a> {
    /// Index of the argument, counted from 0.
    place: usize,
    at: ArgPosition<'a>,
    /// The argument before this one.
    before: Option<&'a str>,
    text: &'a str,
}

impl<'a> ClientArgument<'a> {
    /// The flag or variable whose value this argument is, named within it or before it; `None` if there is none.
    fn key(&self) -> Option<&'a str> {
        let inside = self.text.split_once('=').map(|(key, _)| key);
        let is_variable =
            |key: &&str| self.at == ArgPosition::Variable && is_plain_argument(self.at, key);
        let inside = inside.filter(|key| is_flag_name(key) || is_variable(key));
        let before = self.before.filter(|flag| may_be_followed(flag));
        let is_value =
            matches!(self.at, ArgPosition::After(_) | ArgPosition::Package | ArgPosition::Mount);
        inside.or_else(|| before.filter(|_| is_value))
    }

    /// Suffix for the name of its variable, after the name of the server.
    fn called(&self) -> String {
        let key = self.key().map(|key| key.trim_start_matches('-')).filter(|key| key.len() > 1);
        key.map_or_else(|| format!("arg_{}", self.place + 1), str::to_owned)
    }

    /// Describes the value to set its variable to.
    fn wanted(&self, server: &str) -> String {
        let number = self.place + 1;
        match self.key() {
            Some(key) => format!("argument {number} of `{server}`, the value of `{key}`"),
            None => format!("argument {number} of `{server}`"),
        }
    }
}

/// Converts an argument; one that is not plainly harmless becomes a variable.
fn argument(server: &str, argument: &ClientArgument<'_>, told: &mut ImportReport) -> String {
    let ClientArgument { at, .. } = *argument;
    let text = &*at_home(argument.text);
    let (rest, variables) = placeholders(text, &told.file.places);
    let bare = without_placeholders(text);
    let known = has_plain_references(text);
    // A reference to a variable stays as it is.
    if known
        && let [variable] = &variables[..]
        && rest == format!("${{{variable}}}")
    {
        told.named_in(&rest, &variables);
        return rest;
    }
    if bare == text && is_imported_argument(at, &bare) {
        return text.replace("${", "$${");
    }
    let secret =
        matches!(at, ArgPosition::After(flag) if flag.starts_with('-') && !is_plain(flag, "info"));
    if known && bare != text && !secret && is_plain_around("", &bare) {
        told.named_in(&rest, &variables);
        return rest;
    }
    // A mount names only folders, and the folders behind placeholders are known.
    if known
        && at == ArgPosition::Mount
        && bare != text
        && is_plain_argument(at, &located(text, told))
    {
        told.named_in(&rest, &variables);
        return rest;
    }
    let variable = told.variable(server, &argument.called(), argument.wanted(server));
    match text.split_once('=') {
        Some((key, value))
            if !value.is_empty()
                && (is_plain_argument(ArgPosition::First, key)
                    || is_flag_name(key)
                    || at == ArgPosition::Variable && is_plain_argument(at, key)) =>
        {
            format!("{key}=${{{variable}}}")
        }
        _ => format!("${{{variable}}}"),
    }
}

/// `text` with an ordinary folder in place of each placeholder, so that the text around them can be judged.
fn located(text: &str, told: &ImportReport) -> String {
    let somewhere = PlaceholderFolders {
        workspace: told.file.places.workspace.as_ref().map(|_| "/home/x".to_owned()),
        ..PlaceholderFolders::default()
    };
    let (text, variables) = placeholders(text, &somewhere);
    variables.iter().fold(text, |text, name| text.replace(&format!("${{{name}}}"), "/home/x"))
}

/// The working folder of a program: an absolute path, or a variable if it is not made of plain words.
fn directory(server: &str, path: &str, told: &mut ImportReport) -> String {
    let path = at_home(path);
    if !is_plain_folder(&path) {
        let what = format!("the folder that `{server}` is started in");
        return format!("${{{}}}", told.variable(server, "cwd", what));
    }
    let (text, variables) = placeholders(&path, &told.file.places);
    told.named(&variables);
    if path.starts_with(['/', '$']) {
        return text;
    }
    let folder = told.file.folder.join(path.trim_start_matches("./"));
    folder.display().to_string().replace("${", "$${")
}

/// Whether a server's name has the form of a secret, or a long part of letters and digits that is no word.
fn could_be_secret(name: &str) -> bool {
    const LONG: usize = 20;
    let is_random = |part: &str| {
        let has = |is: fn(&u8) -> bool| part.bytes().any(|byte| is(&byte));
        part.len() >= LONG && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
    };
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    masking::secrets(name) != name || parts.any(is_random) && !is_plain_name(name)
}

/// Converts a name to one that a server can have in the configuration.
fn clean(name: &str) -> String {
    let kept =
        |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(kept).take(60).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "server".to_owned() } else { name.to_owned() }
}

fn written(servers: &BTreeMap<String, ImportedServer>, told: &ImportReport, file: &Path) -> String {
    let mut out = format!(
        "# Imported from {}. Nothing is shown to a client until what the servers offer was\n\
         # approved: `portcullis pin`, then `portcullis pin approve`, with `-c` and the name of this file.\n\
         # What `portcullis schema` prints describes every key, for editors.\n",
        file.file_name()
            .map(|name| name.to_string_lossy().escape_debug().to_string())
            .unwrap_or_default()
    );
    for (variable, what) in &told.variables {
        writeln!(out, "# {variable}: {}", in_a_line(what)).unwrap_or_default();
    }
    out.push_str(ANONYMOUS);
    out.push_str("servers:\n");
    for (name, server) in servers {
        if let Some(like) = &server.like {
            writeln!(out, "  # Accepted at the import: {like}").unwrap_or_default();
        }
        writeln!(out, "  - name: {name}").unwrap_or_default();
        if let Some(url) = &server.url {
            writeln!(out, "    url: {}", quoted(url)).unwrap_or_default();
            if url.parse::<http::Uri>().is_ok_and(|url| egress::is_in_the_clear(&url)) {
                out.push_str("    insecure: true  # plain http to another machine: use https\n");
            }
        }
        if server.old {
            out.push_str("    transport: httpSse\n");
        }
        if let Some(command) = &server.command {
            writeln!(out, "    command: {}", quoted(command)).unwrap_or_default();
        }
        if let Some((token, scheme)) = &server.token {
            let prefix = match *scheme {
                "Bearer " => String::new(),
                other => format!(", prefix: {}", quoted(other)),
            };
            let token = quoted(token);
            writeln!(out, "    credential: {{header: {{fromEnv: {token}{prefix}}}}}")
                .unwrap_or_default();
        }
        if !server.args.is_empty() {
            writeln!(out, "    args: {}", json!(server.args)).unwrap_or_default();
        }
        if let Some(directory) = &server.directory {
            writeln!(out, "    workingDirectory: {}", quoted(directory)).unwrap_or_default();
        }
        write_values(&mut out, "env", &server.env);
        write_values(&mut out, "headers", &server.headers);
    }
    let names: Vec<_> = servers.keys().map(String::as_str).collect();
    out.push_str("routes:\n");
    for name in &names {
        writeln!(out, "  - {{path: /{name}, servers: [{name}]}}").unwrap_or_default();
    }
    out.push_str(&written_rules(servers));
    out.push_str("audit:\n  sinks:\n    - {name: file, file: audit.jsonl}\n");
    out
}

/// A text as a YAML scalar: a JSON string is one.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Writes the variables or the headers of a server, if it has any.
fn write_values(out: &mut String, key: &str, values: &[(String, ImportedValue)]) {
    if !values.is_empty() {
        writeln!(out, "    {key}:").unwrap_or_default();
    }
    for (name, said) in values {
        let (how, value) = match said {
            ImportedValue::Plain(value) => ("value", quoted(&value.replace("${", "$${"))),
            ImportedValue::Mixed(value) => ("value", quoted(value)),
            ImportedValue::Variable(variable) => ("fromEnv", quoted(variable)),
        };
        let name = quoted(name);
        writeln!(out, "      - {{name: {name}, {how}: {value}}}").unwrap_or_default();
    }
}

/// The rules for the servers. A server with a list of tools of which none could be imported gets no rule.
fn written_rules(servers: &BTreeMap<String, ImportedServer>) -> String {
    let mut rules = String::new();
    for (name, server) in servers {
        if !server.tools.denied.is_empty() {
            writeln!(
                rules,
                "    - {{id: forbidden-{name}, effect: forbid, principals: ['*'], servers: [{name}], tools: {}}}",
                json!(server.tools.denied)
            )
            .unwrap_or_default();
        }
        let what = match server.tools.allowed.as_deref() {
            None => "tools: [\"*\"], prompts: [\"*\"], resources: [\"*\"]".to_owned(),
            Some([]) => continue,
            Some(tools) => format!("tools: {}", json!(tools)),
        };
        writeln!(
            rules,
            "    - {{id: local-{name}, effect: allow, principals: ['group:local'], servers: [{name}], {what}}}"
        )
        .unwrap_or_default();
    }
    match rules.is_empty() {
        true => "policy:\n  rules: []\n".to_owned(),
        false => format!("policy:\n  rules:\n{rules}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ImportArgs, converted, plain_json, read_json};

    /// What becomes of a file, and what is said of it: warnings, notes, and variables.
    fn import(file: &str, text: &str, require_pinned: bool) -> (String, String) {
        let import = ImportArgs { require_pinned, ..ImportArgs::of(file.into()) };
        let (yaml, told) = converted(&import, Path::new(file), text).unwrap();
        let set = told.variables.iter().map(|(name, what)| format!("set {name} to {what}"));
        let said: Vec<_> = told.warnings.into_iter().chain(told.notes).chain(set).collect();
        (yaml.unwrap_or_default(), said.join("\n"))
    }

    /// A file of Claude Code in a project, with these servers.
    fn project(servers: &str) -> (String, String) {
        import("/srv/web/.mcp.json", &format!("{{\"mcpServers\": {{{servers}}}}}"), false)
    }

    /// Checks that a text has all these parts.
    fn has(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn restrictions_of_a_client_become_rules() {
        let (yaml, said) = project(
            r#""some": {"command": "/opt/a", "includeTools": ["read"], "excludeTools": ["drop"]},
            "none": {"command": "/opt/b", "enabled_tools": []},
            "all": {"command": "/opt/c", "alwaysAllow": []}, "odd": {"command": "/opt/d", "sandboxing": 1}"#,
        );
        has(
            &yaml,
            &[
                r#"{id: forbidden-some, effect: forbid, principals: ['*'], servers: [some], tools: ["drop"]}"#,
                r#"servers: [some], tools: ["read"]}"#,
                r#"servers: [all], tools: ["*"]"#,
            ],
        );
        assert!(!yaml.contains("local-none"), "{yaml}");
        has(
            &said,
            &[
                "the rule `forbidden-some` says so",
                "`none`: none of the tools",
                "left out: `sandboxing`",
            ],
        );
    }

    #[test]
    fn a_package_that_cannot_be_seen_is_warned_of_or_left_out() {
        let text = r#"{"mcpServers": {
            "shell": {"command": "bash", "args": ["-c", "npx -y tool"]},
            "windows": {"command": "cmd", "args": ["/c", "npx", "-y", "@acme/tool"]},
            "image": {"command": "docker", "args": ["run", "-i", "--rm", "-p", "127.0.0.1:8085:8085", "-e", "GH_TOKEN", "ghcr.io/acme/tool"]},
            "python": {"command": "uvx", "args": ["--python", "3.11", "blender-tool"]}}}"#;
        let (yaml, said) = import("/srv/claude_desktop_config.json", text, false);
        has(
            &yaml,
            &[
                r#"args: ["/c","npx","-y","@acme/tool"]"#,
                r#"["run","-i","--rm","-p","127.0.0.1:8085:8085","-e","GH_TOKEN","ghcr.io/acme/tool"]"#,
                r#"{name: "GH_TOKEN", fromEnv: "GH_TOKEN"}"#,
                r#"["--python","3.11","blender-tool"]"#,
            ],
        );
        has(
            &said,
            &[
                "`shell`: which package or image it runs cannot be seen",
                "`windows`: `@acme/tool` names no version",
                "`image`: `ghcr.io/acme/tool` names no version",
                "`python`: `blender-tool` names no version",
                "set GH_TOKEN to what the client takes from its environment",
            ],
        );
        let (yaml, said) = import("/srv/claude_desktop_config.json", text, true);
        assert_eq!(yaml, "", "{said}");
        has(&said, &["`shell` was left out: which package or image it runs cannot be seen"]);
    }

    #[test]
    fn every_server_is_imported_or_named() {
        let (yaml, said) = project(
            r#""stream": {"httpUrl": "https://example.com/mcp"}, "within": {"type": "sdk", "name": "x"},
            "empty": {}, "blank": {"url": ""}, "socket": {"url": "wss://example.com/mcp"},
            "text": {"command": "/opt/a", "args": "--flag y"}, "todo": {"command": "/<your folder>/run", "args": []},
            "spaced": {"command": "/Applications/My App.app/run", "args": []}, "line": {"command": "npx tool"},
            "events": {"url": "https://example.com/sse"}"#,
        );
        has(
            &yaml,
            &[
                "- name: stream\n    url: \"https://example.com/mcp\"\nroutes:",
                "command: \"/Applications/My App.app/run\"",
                "url: \"https://example.com/sse\"\n    transport: httpSse\n",
            ],
        );
        has(
            &said,
            &[
                "`within` was left out: its type is `sdk`",
                "`empty` was left out: it has neither",
                "`blank` was left out: it has neither",
                "`socket` was left out: it is reached over WebSocket",
                "`text` was left out: its `args` are no list",
                "`todo` was left out: its command is not filled in",
                "`line` was left out: its command is more than a program",
                "`events`: taken for a server of HTTP+SSE",
            ],
        );
    }

    #[test]
    fn what_a_server_is_shown_is_imported_or_named() {
        let (yaml, said) = project(
            r#""ide": {"url": "https://example.com/mcp", "requestInit": {"headers": {"Authorization": "Bearer hunter2x"}}},
            "helped": {"url": "https://example.com/mcp", "headersHelper": "/opt/helper", "oauth": {"clientId": "x"}, "timeout": 5},
            "asked": {"url": "https://example.com/mcp?read_only=true&token=hunter2x&key=${MY_KEY}"},
            "codex": {"command": "/opt/a", "env_vars": ["FOO_TOKEN"], "env": {"LEVEL": "info"}},
            "bearer": {"url": "https://example.com/mcp", "bearer_token_env_var": "MY_PAT"},
            "plain": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer $OTHER_KEY"}},
            "usual": {"url": "https://example.com/mcp", "headers": {"X-Api-Key": "${USUAL_KEY:-}", "Accept": "x"}},
            "token": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN_KEY:-}"}, "env": {"A": "b"}},
            "bridge": {"command": "npx", "args": ["mcp-remote@0.1.0", "--header", "Authorization:${AUTH}"], "env": {"AUTH": "hunter2x"}}"#,
        );
        has(
            &yaml,
            &[
                "credential: {header: {fromEnv: \"IDE_AUTHORIZATION\"}}",
                "url: \"https://example.com/mcp?read_only=true&token=${ASKED_TOKEN}&key=${MY_KEY}\"",
                r#"{name: "FOO_TOKEN", fromEnv: "FOO_TOKEN"}"#,
                "credential: {header: {fromEnv: \"MY_PAT\"}}",
                "credential: {header: {fromEnv: \"OTHER_KEY\"}}",
                r#"{name: "X-Api-Key", value: "${USUAL_KEY:-}"}"#,
                "credential: {header: {fromEnv: \"TOKEN_KEY\"}}",
                r#""--header","Authorization:$${AUTH}"]"#,
            ],
        );
        has(
            &said,
            &[
                "`helped`: its `headersHelper` was left out",
                "`helped`: its `oauth` was left out",
                "`helped`: its `timeout` was left out",
                "`usual`: its header `Accept` was left out",
                "`token`: its `env` was left out, because it is a server with a URL",
                "set FOO_TOKEN to",
                "set MY_PAT to the token of `bearer`",
                "set ASKED_TOKEN to the value of `token` in the URL of `asked`",
            ],
        );
        assert!(!yaml.contains("hunter2x") && !said.contains("hunter2x"), "{yaml}{said}");
        assert!(!said.contains("set USUAL_KEY"), "{said}");
    }

    #[test]
    fn two_secrets_do_not_share_a_variable() {
        let text = r#"{"inputs": [{"type": "promptString", "id": "api-key", "description": "Key of one"}], "servers": {
            "one": {"command": "/opt/a", "env": {"KEY": "Bearer ${input:api-key}"}},
            "two": {"command": "/opt/b", "env": {"KEY": "${env:API_KEY}"}},
            "git": {"command": "/opt/c", "env": {"KEY": "hunter2x", "OTHER": "${env:GIT_KEY}"}}}}"#;
        let (yaml, said) = import("/srv/web/.vscode/mcp.json", text, false);
        has(
            &yaml,
            &[
                r#"{name: "KEY", value: "Bearer ${INPUT_API_KEY}"}"#,
                r#"{name: "KEY", fromEnv: "API_KEY"}"#,
                r#"{name: "KEY", fromEnv: "GIT_KEY_2"}"#,
                r#"{name: "OTHER", fromEnv: "GIT_KEY"}"#,
            ],
        );
        has(&said, &["set INPUT_API_KEY to Key of one", "set API_KEY to"]);
    }

    #[test]
    fn a_program_of_a_project_is_started_in_its_folder() {
        let (yaml, said) = project(
            r#""own": {"command": "./bin/run"}, "script": {"command": "node", "args": ["dist/stdio.js"]},
            "other": {"command": "npx", "args": ["-y", "@acme/tool@1.2.3"]}, "there": {"command": "/opt/a", "cwd": "/opt"}"#,
        );
        assert_eq!(yaml.matches("workingDirectory: \"/srv/web\"").count(), 2, "{yaml}{said}");
        let text = r#"{"mcpServers": {"script": {"command": "node", "args": ["./stdio.js"]}}}"#;
        let (_, said) = import("/srv/web/mcp.json", text, false);
        has(&said, &["`script`: its command or its arguments depend on the folder"]);
    }

    #[test]
    fn files_in_yaml_and_lists_without_a_wrapper_are_read() {
        for (file, text) in [
            (
                "config.yaml",
                "mcpServers:\n  - name: tool\n    command: /opt/a\n    args: [--fast]\n",
            ),
            (
                "librechat.yaml",
                "mcpServers:\n  tool:\n    type: stdio\n    command: /opt/a\n    args: [--fast]\n",
            ),
            (
                "goose.yaml",
                "extensions:\n  tool:\n    type: stdio\n    cmd: /opt/a\n    args: [--fast]\n    enabled: true\n",
            ),
            (".mcp.json", r#"{"tool": {"command": "/opt/a", "args": ["--fast"]}}"#),
            (
                "settings.json",
                r#"{"theme": "dark", "context_servers": {"tool": {"command": "/opt/a", "args": ["--fast"]}}}"#,
            ),
        ] {
            let (yaml, said) = import(file, text, false);
            has(&yaml, &["- name: tool\n    command: \"/opt/a\"\n    args: [\"--fast\"]\n"]);
            assert_eq!(said, "", "{file}");
        }
    }

    #[test]
    fn what_editors_allow_in_json_is_read() {
        let text =
            "{ // one\n \"a\": \"// not, /* this */, \\\" \", /* two */ \"b\": [1, 2,\n],\n}";
        let value = read_json(text).unwrap();
        assert_eq!(value["a"], "// not, /* this */, \" ");
        assert_eq!(value["b"][1], 2);
        assert_eq!(plain_json("{}"), "{}");
    }
}
