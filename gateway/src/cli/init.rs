//! `portcullis init`: a configuration to begin with. It has no secret in it: the API key that is drawn for it is shown once
//! and only its hash is kept, and what servers are shown comes from variables.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gateway::base::masking;
use policy::drift::visible;
use policy::name::{PrincipalId, ServerName};
use serde_json::Value;

use super::export::KEY;
use super::import::{self, ANONYMOUS, Import};
use super::{Drawn, USUAL, complain, hints, invalid, load, pin, print, say};

/// The file with what is revoked, beside the configuration.
const REVOKED: &str = "revoked.yaml";

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Where the configuration is written; there must be nothing.
    #[arg(short, long, value_name = "FILE", default_value = USUAL)]
    config: PathBuf,
    /// The name of a server, with its `--command` or its `--url`.
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    server: Option<String>,
    /// The program of the server, if it speaks over stdio. Its arguments come last, after `--`.
    #[arg(long, value_name = "PROGRAM", requires = "server", conflicts_with = "url")]
    command: Option<String>,
    /// The endpoint of the server, if it speaks over HTTP.
    #[arg(long, value_name = "URL", requires = "server")]
    url: Option<String>,
    /// A variable of this environment that the program is given. Can be given more than once.
    #[arg(long, value_name = "VARIABLE", requires = "command")]
    env: Vec<String>,
    /// The variable with the token that the server at `--url` is shown in `Authorization: Bearer`.
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    token_env: Option<String>,
    /// Take the servers of a client from its file instead, as `portcullis import` does.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The arguments of the program.
    #[arg(last = true, value_name = "ARGUMENT", requires = "command")]
    args: Vec<String>,
}

pub(super) fn run(init: &Init) -> ExitCode {
    match written(init) {
        Ok(code) | Err(code) => code,
    }
}

fn written(init: &Init) -> Result<ExitCode, ExitCode> {
    // Before anything is drawn or said.
    if init.config.symlink_metadata().is_ok() {
        return Err(complain(&format!(
            "`{}` is there already, and is not overwritten: name another file with `-c FILE`",
            init.config.display()
        )));
    }
    let drawn = Drawn::new()?;
    let yaml = match &init.from {
        Some(file) => {
            let imported = import::read(&Import::of(file.clone()));
            let imported = imported.map_err(|error| complain(&error))?;
            imported.replacen(ANONYMOUS, &beginning(&drawn.sha256), 1)
        }
        None => own(init, &drawn.sha256).map_err(|error| complain(&error))?,
    };
    let revoked = RevocationsFile::beside(&init.config)?;
    // What cannot be run is not written. What stands for the variables of an import is for its user to say, who was told
    // which these are and can look at them in the file.
    let unset = match load(&init.config, &yaml) {
        Ok(_) => Vec::new(),
        Err(problems) if init.from.is_some() && problems.are_unset_variables() => problems.each(),
        Err(problems) => {
            revoked.take_back();
            return Err(invalid(&problems));
        }
    };
    created(&init.config, &yaml).map_err(|error| {
        revoked.take_back();
        complain(&format!("could not write `{}`: {error}", init.config.display()))
    })?;
    Ok(print(&told(init, &drawn.key, &unset)))
}

/// Writes a file that is not there yet.
fn created(file: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The file of revocations that the configuration names: without one nothing can be revoked while the gateway runs.
struct RevocationsFile {
    file: PathBuf,
    /// It was not there before.
    is_new: bool,
}

impl RevocationsFile {
    /// Writes one that revokes nothing beside the configuration. One that is there already stays as it is.
    fn beside(config: &Path) -> Result<Self, ExitCode> {
        let file = config.with_file_name(REVOKED);
        match created(&file, "{}\n") {
            Ok(()) => Ok(Self { file, is_new: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                say(&format!(
                    "note: `{}` is there already, and what it revokes is revoked",
                    file.display()
                ));
                Ok(Self { file, is_new: false })
            }
            Err(error) => Err(complain(&format!("could not write `{}`: {error}", file.display()))),
        }
    }

    /// Removes what was written, where nothing comes of it.
    fn take_back(&self) {
        if self.is_new
            && let Err(error) = fs::remove_file(&self.file)
        {
            say(&format!("note: could not remove `{}`: {error}", self.file.display()));
        }
    }
}

/// What comes next, and before it which variables are not set: each with its place in the file, and what to do.
fn told(init: &Init, key: &str, unset: &[(String, String)]) -> String {
    let file = &*init.config;
    let mut missing = String::new();
    for (said, _) in unset {
        missing.push_str(&format!("Not set yet, and needed from here on: {said}\n"));
    }
    let named = if file == Path::new(USUAL) { String::new() } else { hints::option(file) };
    let by = pin::by_option();
    format!(
        "written: {}\n\
         API key, shown this once: {key}\n\
         {}{missing}\
         \n\
         Next, approve what the servers offer, and start:\n\
         \n  portcullis pin{named} && portcullis pin approve{named}{by}\n  portcullis run{named}\n\
         \n\
         `portcullis export{named} --client CLIENT` prints what a client has to be told: `claude-code`, `claude-desktop`, \
         `cursor`, `vscode`, `codex` or `opencode`. It finds the key in `{KEY}`.\n",
        file.display(),
        to_set(init)
    )
}

/// The variables that have to be set wherever the configuration is used. Those of an import are named by it.
fn to_set(init: &Init) -> String {
    let server = init.server.as_deref().unwrap_or_default().escape_debug();
    let mut out = String::new();
    for name in &init.env {
        out.push_str(&format!("Set `{}` for the program of `{server}`\n", name.escape_debug()));
    }
    if let Some(name) = &init.token_env {
        out.push_str(&format!(
            "Set `{}` to the token for `{server}`, without `Bearer `: the gateway writes that\n",
            name.escape_debug()
        ));
    }
    out
}

/// The listeners and the one caller.
fn beginning(sha256: &str) -> String {
    let user = env::var("USER").ok().filter(|user| PrincipalId::parse(user).is_ok());
    let principal = quoted(user.as_deref().unwrap_or("owner"));
    format!(
        "apiVersion: portcullis.dev/v1\n\
         \n\
         # Where clients connect: from this machine alone, with an API key.\n\
         listeners:\n  - name: main\n    address: 127.0.0.1:8080\n    authentication: [apiKey]\n\
         \n\
         # For the operator of the gateway: health and metrics.\n\
         ops:\n  address: 127.0.0.1:9901\n  \
         # With a token also `portcullis config applied`, `revoke`, `selftest` and reloads: set `OPS_TOKEN` to what\n  \
         # `openssl rand -hex 32` prints.\n  \
         # token: {{fromEnv: OPS_TOKEN}}\n\
         \n\
         # What `portcullis revoke` says is no longer to be used, such as `--server NAME`; a gateway that runs reads it when \
         it changes.\n\
         revocations:\n  file: {REVOKED}\n\
         \n\
         identity:\n  apiKeys:\n    \
         # The hash of a key: the key itself stands nowhere. `portcullis keygen` makes more.\n    \
         - name: first\n      principal: {principal}\n      groups: [local]\n      sha256: {sha256}\n\
         \n"
    )
}

/// The configuration for the one server that is named.
fn own(init: &Init, sha256: &str) -> Result<String, String> {
    let Some(name) = &init.server else {
        return Err("name a server, such as `portcullis init --server files --command npx -- -y \
                    @modelcontextprotocol/server-filesystem@2026.8.31 /srv/shared`, or `--server NAME --url URL`, or the \
                    file of a client with `--from FILE`"
            .to_owned());
    };
    // It becomes a part of several names in the file; a mistake there would be told of a file that is not written.
    if let Err(error) = ServerName::parse(name) {
        return Err(format!("`--server {}`: the name {error}", visible(name)));
    }
    let server = server(init)?;
    let (named, path) = (quoted(name), quoted(&format!("/{name}")));
    let rule = quoted(&format!("local-{name}"));
    Ok(format!(
        "# Written by `portcullis init`. docs/configuration.md says what else there is, docs/keys.md has every key.\n\
         {}\
         servers:\n  - name: {named}\n{server}\
         \n\
         # Clients connect to http://127.0.0.1:8080/{name}.\n\
         routes:\n  - path: {path}\n    servers: [{named}]\n\
         \n\
         # What no rule allows is denied. What a rule allows is shown once it is approved: `portcullis pin`.\n\
         policy:\n  rules:\n    - id: {rule}\n      effect: allow\n      principals: ['group:local']\n      \
         servers: [{named}]\n      tools: ['*']\n      prompts: ['*']\n      resources: ['*']\n\
         \n\
         # Every exchange is recorded before it has an effect: `portcullis audit query audit.jsonl`.\n\
         audit:\n  sinks:\n    - name: file\n      file: audit.jsonl\n",
        beginning(sha256)
    ))
}

/// How the server is reached.
fn server(init: &Init) -> Result<String, String> {
    let given = init.args.iter().chain(&init.command).chain(&init.url);
    for text in given {
        if masking::secrets(text) != *text {
            return Err("a secret stands in what was given, and would stand in the file: put it into a variable, and give \
                        that with `--env` or `--token-env`"
                .to_owned());
        }
    }
    // What stands in `${}` in an argument is not for us.
    let escaped = |text: &str| quoted(&text.replace("${", "$${"));
    let mut out = String::new();
    match (&init.command, &init.url) {
        (Some(command), None) => {
            out.push_str(&format!("    command: {}\n", escaped(command)));
            if !init.args.is_empty() {
                let args: Vec<_> = init.args.iter().map(|arg| escaped(arg)).collect();
                out.push_str(&format!("    args: [{}]\n", args.join(", ")));
            }
            if !init.env.is_empty() {
                out.push_str("    # It gets `PATH`, `HOME`, `LANG`, `TMPDIR` and these of the gateway's environment.\n    env:\n");
            }
            for name in &init.env {
                let name = quoted(name);
                out.push_str(&format!("      - {{name: {name}, fromEnv: {name}}}\n"));
            }
        }
        (None, Some(url)) => {
            out.push_str(&format!("    url: {}\n", escaped(url)));
            if let Some(variable) = &init.token_env {
                let variable = quoted(variable);
                out.push_str(&format!("    credential: {{header: {{fromEnv: {variable}}}}}\n"));
            }
        }
        _ => {
            return Err(
                "say how the server is reached: `--command PROGRAM` or `--url URL`".to_owned()
            );
        }
    }
    Ok(out)
}

/// Text as a scalar: a string of JSON is one of YAML, whatever is in it; a plain word needs no quotes.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-/.".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&&*text.to_ascii_lowercase());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}
