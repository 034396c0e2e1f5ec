//! `portcullis token`: shows what the gateway would decide about an access token, and why. The token is read from
//! standard input or from a file, because an argument would be kept in the history of the shell and in the list of
//! processes. Neither the token nor its signature is ever printed.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gateway::base::clock::{Clock as _, SystemClock};
use gateway::base::error_chain::ErrorChain;
use gateway::base::file;
use gateway::control::token_inspection::{self, TokenContext, TokenReport, TokenVerdict};
use gateway::crypto::jose::{self, MAX_TOKEN};
use gateway::identity::{AuthnError, Confirmation, TokenError};
use gateway::metrics::credential_check::CredentialCheck;
use json::{Document, Value};
use policy_core::subject::name::Scope;
use policy_core::subject::principal::Principal;
use serde_json::json;

use super::printable::in_a_line;
use super::{OutputFormat, complain, named_or_usual, no_configuration, print, say, settings};

/// Exit code: the gateway would refuse the token.
const REFUSED: u8 = 5;
/// Exit code: the keys of the issuer could not be read, or its introspection endpoint could not be asked.
const UNREACHED: u8 = 7;
/// Most characters of a claim that are shown.
const SHOWN: usize = 200;
/// Members of the header that are shown; `OF_CLAIMS` lists the claims.
const OF_HEADER: [&str; 3] = ["typ", "alg", "kid"];
const OF_CLAIMS: [&str; 17] = [
    "iss",
    "aud",
    "sub",
    "oid",
    "client_id",
    "azp",
    "cid",
    "appid",
    "gty",
    "idtyp",
    "typ",
    "scope",
    "scp",
    "exp",
    "nbf",
    "iat",
    "cnf",
];

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    verb: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Check an access token as the gateway would, step by step, and show the principal that its holder would call as.
    /// For a token that is not a JWT, the issuer is asked with the credentials of the configuration (`introspection`).
    /// Exits with 0 if the token would be accepted (with `--raw`: if it can be read), with 5 if it would be refused,
    /// with 7 if the keys of its issuer could not be read or the issuer could not be asked, and with 3 if the
    /// configuration is not valid.
    Inspect(TokenInspectArgs),
}

#[derive(Debug, Args)]
struct TokenInspectArgs {
    /// The file with the token, or `-` for standard input. Default: standard input. Never the token itself.
    #[arg(value_name = "FILE")]
    token: Option<PathBuf>,
    /// The configuration to check against. Default: `portcullis.yaml` in the working folder, if that file exists.
    /// Without a configuration nothing is verified, and only the content of the token is shown.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read no configuration: show the content of the token, and verify nothing.
    #[arg(long, conflicts_with_all = ["config", "jwks", "route", "listener"])]
    raw: bool,
    /// A file with the issuer's key set (RFC 7517). With it, nothing is fetched and the issuer is not asked.
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// The path of the route that the token is for. Required if the configuration has more than one route.
    #[arg(short, long, value_name = "PATH")]
    route: Option<String>,
    /// The listener that receives the token. Default: the first one that accepts tokens.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Output format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

pub(super) fn run(token: &TokenArgs) -> ExitCode {
    let TokenCommand::Inspect(inspect) = &token.verb;
    inspected(inspect).unwrap_or_else(|code| code)
}

fn inspected(inspect: &TokenInspectArgs) -> Result<ExitCode, ExitCode> {
    let token = read(inspect.token.as_deref()).map_err(|why| complain(&why))?;
    let config = match inspect.raw {
        true => None,
        false => named_or_usual(inspect.config.clone()),
    };
    let Some(config) = config else {
        // Options about the verification cannot be honoured without a configuration.
        let is_asked =
            inspect.jwks.is_some() || inspect.route.is_some() || inspect.listener.is_some();
        return if is_asked {
            Err(no_configuration())
        } else {
            Ok(said_alone(&token, inspect.format))
        };
    };
    let settings = settings(&config)?;
    // The log says why an issuer could not be asked, as that of the gateway does.
    super::log_in_words("warn");
    let about = TokenContext {
        route: inspect.route.as_deref(),
        listener: inspect.listener.as_deref(),
        keys: inspect.jwks.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| complain(&format!("could not start: {error}")))?;
    let examined = runtime.block_on(token_inspection::examine(settings, &about, &token));
    let examined = examined.map_err(|error| {
        let raw = if inspect.config.is_none() { "; `--raw` shows what the token says" } else { "" };
        complain(&format!("{}{raw}", ErrorChain(&error)))
    })?;
    match inspect.format {
        OutputFormat::Human => drop(print(&words(&token, &examined))),
        OutputFormat::Json => drop(print(&format!("{}\n", object(&examined)))),
    }
    Ok(match &examined.verdict {
        TokenVerdict::Accepted(..) => ExitCode::SUCCESS,
        TokenVerdict::Refused(TokenError::Unavailable) => {
            say(match &examined.asked {
                None => {
                    "the keys of the issuer could not be had: the gateway would answer 503; `--jwks FILE` gives them"
                }
                Some(_) => "the issuer could not be asked: the gateway would answer 503",
            });
            ExitCode::from(UNREACHED)
        }
        TokenVerdict::Refused(_) | TokenVerdict::Revoked(_) => ExitCode::from(REFUSED),
    })
}

/// Reads the token: one line, with or without `Bearer ` or `DPoP ` before it.
fn read(file: Option<&Path>) -> Result<String, String> {
    let longest = MAX_TOKEN as u64 * 2;
    let text = match file.filter(|file| *file != Path::new("-")) {
        None => {
            let mut text = String::new();
            let read = io::stdin().take(longest).read_to_string(&mut text);
            read.map_err(|_unreadable| "what came on standard input is no text".to_owned())?;
            text
        }
        // An error may be logged, so it must not repeat an argument that is a token.
        Some(file) if is_a_token(file) => {
            return Err("write the token into a file or to standard input: on the command line it is in the history of \
                        the shell and in the list of processes, so it should no longer be used"
                .to_owned());
        }
        Some(file) => file::text(file, longest)
            .map_err(|error| format!("could not read `{}`: {error}", file.display()))?,
    };
    let text = text.trim();
    let token = text.split_once(' ').filter(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("dpop")
    });
    let token = token.map_or(text, |(_, token)| token.trim());
    if token.is_empty() {
        return Err("there is no token on standard input, or in the file".to_owned());
    }
    Ok(token.to_owned())
}

/// Whether an argument looks like a token rather than a file name.
fn is_a_token(argument: &Path) -> bool {
    let text = argument.as_os_str().to_string_lossy();
    let text = text.trim();
    text.starts_with("eyJ") || (text.matches('.').count() == 2 && text.len() > 100)
}

/// Prints the content of a token that no configuration verifies.
fn said_alone(token: &str, format: OutputFormat) -> ExitCode {
    let Some((header, claims)) = jose::said_header(token).zip(jose::said(token)) else {
        return complain(
            "it is not three parts of Base64 with a JSON object in each of the first two; with `-c FILE` the issuer of \
             the route is asked about a token that is not signed",
        );
    };
    let (header, claims) = (header.root(), claims.root());
    let text = match format {
        OutputFormat::Human => said(header, claims),
        OutputFormat::Json => {
            let member = |value: Value<'_>, name: &str| {
                Some((name.to_owned(), clipped(value.get(name)?).into()))
            };
            let of = |value, names: &[&str]| -> serde_json::Map<_, serde_json::Value> {
                names.iter().filter_map(|name| member(value, name)).collect()
            };
            let (header, claims) = (of(header, &OF_HEADER), of(claims, &OF_CLAIMS));
            let all = json!({ "decision": "undecided", "header": header, "claims": claims });
            format!("{all}\n")
        }
    };
    let code = print(&text);
    say("nothing was verified: with `-c FILE` a configuration decides");
    code
}

/// Formats the header and the claims of a token, one member a line.
fn said(header: Value<'_>, claims: Value<'_>) -> String {
    let now = SystemClock.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut out = String::new();
    for (names, value) in [(&OF_HEADER[..], header), (&OF_CLAIMS[..], claims)] {
        for (name, value) in names.iter().filter_map(|name| Some((*name, value.get(name)?))) {
            let shown = clipped(value);
            let when = match name {
                "exp" | "nbf" | "iat" => relative(&shown, now),
                _ => String::new(),
            };
            writeln!(out, "says         {name:<10} {}{when}", in_a_line(&shown))
                .unwrap_or_default();
        }
    }
    out
}

/// A value as JSON, cut after [`SHOWN`] characters.
fn clipped(value: Value<'_>) -> String {
    let raw = value.raw();
    let mut text: String = raw.chars().take(SHOWN).collect();
    if text.len() < raw.len() {
        text.push_str("...");
    }
    text
}

/// Formats a time in Unix seconds relative to `now`.
fn relative(text: &str, now: u64) -> String {
    let Ok(at) = text.parse::<u64>() else { return String::new() };
    match at.checked_sub(now) {
        Some(0) => "   (now)".to_owned(),
        Some(left) => format!("   (in {left} s)"),
        None => format!("   ({} s ago)", now.saturating_sub(at)),
    }
}

/// Formats the result for people.
fn words(token: &str, examined: &TokenReport) -> String {
    let parts = jose::said_header(token).zip(jose::said(token));
    let said = parts
        .as_ref()
        .map(|(header, claims): &(Document, Document)| said(header.root(), claims.root()));
    let mut out = said.unwrap_or_default();
    let mut line = |name: &str, text: &str| {
        writeln!(out, "{name:<12} {}", in_a_line(text)).unwrap_or_default();
    };
    line("issuer", examined.issuer.as_deref().unwrap_or("not configured"));
    if let Some(asked) = &examined.asked {
        line("asked", &format!("{} as client `{}` (RFC 7662)", asked.url, asked.client));
    }
    line("resource", &examined.resource);
    for (check, state) in &examined.checks {
        let why = match (&examined.verdict, state) {
            (TokenVerdict::Refused(error), token_inspection::CheckState::Failed) => {
                format!("{:<10} {}: {}", check.as_str(), error.detail().code(), ErrorChain(error))
            }
            _ => check.as_str().to_owned(),
        };
        line(state.as_str(), &why);
    }
    match &examined.verdict {
        TokenVerdict::Accepted(principal, confirmation) => {
            line("accepted", "");
            caller(principal, &mut line);
            if let Some(proof) = proof(confirmation) {
                line("needs", proof);
            }
            if let Some(note) = unheld(&examined.unheld_scopes) {
                line("note", &note);
            }
        }
        TokenVerdict::Revoked(principal) => {
            line("refused", "credential-revoked");
            caller(principal, &mut line);
        }
        TokenVerdict::Refused(error) => line("refused", AuthnError::Token(error.clone()).code()),
    }
    if let Some(hint) = &examined.hint {
        line("hint", hint);
    }
    out
}

/// A note about scopes that the route names and the token lacks; `None` if it has all.
fn unheld(scopes: &[Scope]) -> Option<String> {
    let names: Vec<_> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the token does not have {}: `oauth.scopes` of the route says what clients ask for first and requires nothing; \
             put scopes that are needed in `scopes` of the rules",
            names.join(", ")
        )
    })
}

/// Prints the principal, its client, groups, roles and scopes.
fn caller(who: &Principal, line: &mut impl FnMut(&str, &str)) {
    let list =
        |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    line("principal", who.id.as_str());
    if let Some(client) = &who.claims.client {
        line("client", client.as_str());
    }
    line("groups", &list(who.groups.iter().map(|name| name.as_str()).collect()));
    line("roles", &list(who.claims.roles.iter().map(|name| name.as_str()).collect()));
    line("scopes", &list(who.claims.scopes.iter().map(|name| name.as_str()).collect()));
}

/// The proof of possession that each request needs, which cannot be checked here; `None` for a bearer token.
const fn proof(confirmation: &Confirmation) -> Option<&'static str> {
    match confirmation {
        Confirmation { key: Some(_), .. } => Some("a proof by DPoP with each request"),
        Confirmation { certificate: Some(_), key: None } => {
            Some("the certificate it is bound to, on the connection")
        }
        Confirmation { certificate: None, key: None } => None,
    }
}

/// Formats the result as JSON.
fn object(examined: &TokenReport) -> serde_json::Value {
    let checks: Vec<_> = examined
        .checks
        .iter()
        .map(|(check, state)| json!({ "check": check.as_str(), "state": state.as_str() }))
        .collect();
    let (decision, error, who, confirmation) = match &examined.verdict {
        TokenVerdict::Accepted(who, confirmation) => {
            ("accepted", None, Some(who), proof(confirmation))
        }
        TokenVerdict::Revoked(who) => ("refused", None, Some(who), None),
        TokenVerdict::Refused(error) => ("refused", Some(error), None, None),
    };
    let reason = match &examined.verdict {
        TokenVerdict::Accepted(..) => None,
        TokenVerdict::Revoked(_) => Some(AuthnError::Revoked.code()),
        TokenVerdict::Refused(error) => Some(AuthnError::Token(error.clone()).code()),
    };
    json!({
        "decision": decision,
        "reason": reason,
        "detail": error.map(TokenError::detail).map(CredentialCheck::code),
        "why": error.map(|error| ErrorChain(error).to_string()),
        "issuer": examined.issuer,
        "asked": examined.asked.as_ref().map(|asked| json!({ "url": asked.url, "client": asked.client })),
        "resource": examined.resource,
        "checks": checks,
        "principal": who.map(|who| who.id.as_str()),
        "client": who.and_then(|who| who.claims.client.as_ref()).map(|client| client.as_str()),
        "groups": who.map(|who| who.groups.iter().map(|name| name.as_str()).collect::<Vec<_>>()),
        "roles": who.map(|who| who.claims.roles.iter().map(|name| name.as_str()).collect::<Vec<_>>()),
        "scopes": who.map(|who| who.claims.scopes.iter().map(|name| name.as_str()).collect::<Vec<_>>()),
        "needs": confirmation,
        "unheldScopes": examined.unheld_scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>(),
        "hint": examined.hint,
    })
}
