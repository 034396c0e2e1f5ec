//! `portcullis init`: writes a first configuration. The file holds no secret: the generated API key is shown once and
//! only its hash is stored, and credentials for upstream servers come from variables.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gateway::base::masking;
use gateway::config::settings::{ServerSettings, has_secret_argument};
use policy::definition::drift::visible;
use policy_core::subject::name::{PrincipalId, ServerName};
use serde_json::Value;

use super::export::KEY;
use super::given::{self, SealedFolder};
use super::import::{self, ANONYMOUS, ImportArgs};
use super::{NewApiKey, USUAL, complain, hints, invalid, load, pin, print, say};

/// Name of the revocations file, beside the configuration.
const REVOKED: &str = "revoked.yaml";

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// The file to write the configuration to. It must not exist.
    #[arg(short, long, value_name = "FILE", default_value = USUAL)]
    config: PathBuf,
    /// The name of the server. Give its `--command` or its `--url` as well. This writes one server: for several, take
    /// the file of a client with `--from`, or add the others to the file that is written.
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    server: Option<String>,
    /// The program of the server, if it speaks stdio. Its arguments come last, after `--`.
    #[arg(long, value_name = "PROGRAM", requires = "server", conflicts_with = "url")]
    command: Option<String>,
    /// The endpoint of the server, if it speaks HTTP.
    #[arg(long, value_name = "URL", requires = "server")]
    url: Option<String>,
    /// An environment variable that the gateway passes to the program. Can be given more than once.
    #[arg(long, value_name = "VARIABLE", requires = "command")]
    env: Vec<String>,
    /// The variable with the token that the gateway sends to `--url` in `Authorization: Bearer`.
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    token_env: Option<String>,
    /// Take the servers from the configuration file of a client instead, as `portcullis import` does.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The arguments of the program.
    #[arg(last = true, value_name = "ARGUMENT", requires = "command")]
    args: Vec<String>,
}

pub(super) fn run(init: &InitArgs) -> ExitCode {
    match written(init) {
        Ok(code) | Err(code) => code,
    }
}

fn written(init: &InitArgs) -> Result<ExitCode, ExitCode> {
    // Check this first, so that no key is generated or shown for nothing.
    if init.config.symlink_metadata().is_ok() {
        return Err(complain(&format!(
            "`{}` is there already, and is not overwritten: name another file with `-c FILE`",
            init.config.display()
        )));
    }
    let drawn = NewApiKey::new()?;
    let yaml = match &init.from {
        Some(file) => {
            let imported = import::read(&ImportArgs::of(file.clone()));
            let imported = imported.map_err(|error| complain(&error))?;
            imported.replacen(ANONYMOUS, &beginning(&drawn.sha256), 1)
        }
        None => own(init, &drawn.sha256).map_err(|error| complain(&error))?,
    };
    let revoked = RevocationsFile::beside(&init.config)?;
    // A configuration that cannot run is not written. Unset variables of an import are tolerated: the user was told
    // which they are, and can set them later.
    let (unset, servers) = match load(&init.config, &yaml) {
        Ok(settings) => (Vec::new(), settings.servers),
        Err(problems) if init.from.is_some() && problems.are_unset_variables() => {
            (problems.each(), Vec::new())
        }
        Err(problems) => {
            revoked.take_back();
            return Err(invalid(&problems));
        }
    };
    created(&init.config, &yaml).map_err(|error| {
        revoked.take_back();
        complain(&format!("could not write `{}`: {error}", init.config.display()))
    })?;
    let printed = print(&told(init, &drawn.key, &unset));
    if let (Some(server), Some(command)) = (&init.server, &init.command)
        && let Some(warning) = import::unpinned_warning(server, command, &init.args)
    {
        say(&format!("warning: {warning}"));
    }
    if let Some(warning) = of_options(init) {
        say(&format!("warning: {warning}"));
    }
    servers.iter().for_each(|server| of_folders(server, init));
    Ok(printed)
}

/// The warning about options of this verb among the arguments of the program, which are probably meant as another
/// server.
fn of_options(init: &InitArgs) -> Option<String> {
    let name = init.server.as_deref()?.escape_debug();
    let is_option = |arg: &&String| {
        let option = arg.split_once('=').map_or(arg.as_str(), |(option, _)| option);
        ["--server", "--command", "--url"].contains(&option)
    };
    let option = visible(init.args.iter().find(is_option)?);
    Some(format!(
        "`{option}` after `--` became an argument of the program of `{name}`. `init` writes one server: if another one is \
         meant, take it out of `args`, and add the server under `servers`, `routes` and `policy.rules`, or give several \
         with `--from`"
    ))
}

/// Prints in which folders a server cannot work because the gateway's files are there.
fn of_folders(server: &ServerSettings, init: &InitArgs) {
    let files = [init.config.clone(), init.config.with_file_name(REVOKED)];
    let sealed = SealedFolder::all(server);
    sealed.iter().for_each(|sealed| say(&of_sealed(sealed, &files)));
    if let (true, Some(note)) = (sealed.is_empty(), given::beside(server, &init.config)) {
        say(&format!("note: {note}"));
    }
}

/// The warning about a server that cannot work in the folder that it is given, because the gateway's files are in it.
/// They are as easily moved now as they never are again.
fn of_sealed(sealed: &SealedFolder, [config, revoked]: &[PathBuf; 2]) -> String {
    let apart = sealed.apart();
    format!(
        "warning: {}. If it has to, keep the gateway's files outside of that folder: `mkdir {}`, remove `{}` and `{}`, and \
         repeat this command with `-c {}`",
        sealed.said(),
        hints::word(&apart.display().to_string()),
        config.display(),
        revoked.display(),
        hints::word(&apart.join(USUAL).display().to_string())
    )
}

/// Writes a new file; an existing one is an error.
fn created(file: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The revocations file that the configuration names. Without one, nothing could be revoked while the gateway runs.
struct RevocationsFile {
    file: PathBuf,
    /// Whether this run created the file.
    is_new: bool,
}

impl RevocationsFile {
    /// Creates an empty revocations file beside the configuration. An existing file is kept.
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

    /// Removes the file if this run created it, because the configuration was not written.
    fn take_back(&self) {
        if self.is_new
            && let Err(error) = fs::remove_file(&self.file)
        {
            say(&format!("note: could not remove `{}`: {error}", self.file.display()));
        }
    }
}

/// The text for standard output: the file, the key, the variables that are not set yet, and the next steps.
fn told(init: &InitArgs, key: &str, unset: &[(String, String)]) -> String {
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

/// The variables that have to be set wherever the configuration is used. `portcullis import` names those of an import.
fn to_set(init: &InitArgs) -> String {
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

/// The sections of the configuration before the servers: the listeners, and one caller.
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
         # A token opens it for `portcullis config applied`, `portcullis revoke`, `portcullis approvals`, reloads and, if this file has a section\n  \
         # `selftest: {{}}`, `portcullis selftest`. To use it, set `OPS_TOKEN` to what `openssl rand -hex 32` prints.\n  \
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

/// The configuration for the one server that the command line names.
fn own(init: &InitArgs, sha256: &str) -> Result<String, String> {
    let Some(name) = &init.server else {
        return Err("name a server, such as `portcullis init --server files --command npx -- -y \
                    @modelcontextprotocol/server-filesystem@2026.8.31 /srv/shared`, or `--server NAME --url URL`, or the \
                    file of a client with `--from FILE`"
            .to_owned());
    };
    // The name becomes part of several names in the file; an error found there would point into a file that does not
    // exist.
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
         audit:\n  sinks:\n    - name: file\n      file: audit.jsonl\n  \
         # To notice later that the end of the log was cut off, keep checkpoints on other storage: docs/audit.md.\n  \
         # checkpoints: {{file: FILE}}\n",
        beginning(sha256)
    ))
}

/// The keys of the server entry that say how to reach the server.
fn server(init: &InitArgs) -> Result<String, String> {
    let given = init.args.iter().chain(&init.command).chain(&init.url);
    let is_masked = given.into_iter().any(|text| masking::secrets(text) != *text);
    // `validate` would warn of the same arguments.
    if is_masked || has_secret_argument(&init.args) {
        return Err("a secret stands in what was given, and would stand in the file: put it into a variable, and give \
                    that with `--env` or `--token-env`"
            .to_owned());
    }
    // `${}` in an argument is not a reference to a variable of the gateway.
    let escaped = |text: &str| quoted(&text.replace("${", "$${"));
    let mut out = String::new();
    match (&init.command, &init.url) {
        (Some(command), None) => {
            out.push_str(&format!("    command: {}\n", escaped(command)));
            if !init.args.is_empty() {
                let args: Vec<_> = init.args.iter().map(|arg| escaped(arg)).collect();
                out.push_str(&format!("    args: [{}]\n", args.join(", ")));
            }
            out.push_str(
                "    # Its sandbox keeps the gateway's files from it, but not your other files or the network. docs/sandbox.md\n    \
                 # says what narrows that, such as `sandbox: {read: [/srv/shared], network: none}`.\n",
            );
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

/// Writes text as a YAML scalar: a plain word without quotes, any other text as a JSON string, which is valid YAML.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-/.".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&&*text.to_ascii_lowercase());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}
