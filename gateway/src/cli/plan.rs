//! `portcullis run --dry-run`: shows the settings that would be in force and what servers offer now. Opens no listener,
//! writes no audit record, and changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use gateway::base::clock::{Clock as _, SystemClock};
use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::lockfile::{self, LockError};
use gateway::config::settings::{AuthScheme, ConfigRemark, ServerTransport, Settings, SinkTarget};
use gateway::control::build;
use gateway::control::inventory::ServerInventory;
use gateway::edge::tls::Acceptor;
use gateway::process::sandbox::{self, NetworkAccess, SandboxPlan, UnlistedFiles};
use policy::definition::lock::Lockfile;
use policy::definition::pins::Pins;
use policy::definition::shadow::ShadowingConflicts;
use policy::engine::pipeline::Policy;
use policy::rules::decision::Mode;
use policy_core::subject::principal::Principal;

use super::pin::{self, SurveyArgs};
use super::{FAILED, INVALID, complain, doctor, print_for_people, why};

/// Exit code: a server offers definitions other than those that are approved.
const DRIFT: u8 = 4;
/// Most definitions that are listed for one caller and one reason.
const NAMES: usize = 10;
/// Exit code: a server cannot be reached, or not all of its lists can be read.
const UNREACHED: u8 = 7;

/// Prints the plan. Exits with 4 if servers offer definitions that are not approved, and with 7 if a server is not
/// reached.
pub(super) fn run(file: &Path) -> ExitCode {
    let which = SurveyArgs::of(file);
    let (mut settings, surveys) = match pin::ask(&which) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    for listener in &settings.listeners {
        let Some(tls) = &listener.tls else { continue };
        if let Err(error) = Acceptor::new(tls, SystemClock.now()) {
            let error = ErrorChain(&error).to_string();
            return complain(&format!("the TLS of the listener `{}`: {error}", listener.name));
        }
    }
    let environment = doctor::environment(settings.limits, settings.limits.connect_timeout);
    if let Err(error) = build::examine_logs(&settings.audit, &environment) {
        let code = complain(&ErrorChain(&error).to_string());
        return if error.is_of_a_secret() { ExitCode::from(INVALID) } else { code };
    }
    let lock = match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => lock,
        Err(LockError::Missing(_)) => Lockfile::default(),
        Err(error) => return complain(&ErrorChain(&error).to_string()),
    };
    let mut out = frame(&settings);
    let policy = policy(&mut settings, &surveys, lock.clone());
    let unapproved = servers(&mut out, &settings, &surveys, &lock);
    callers(&mut out, &settings.identity.principals(), &policy, &surveys);
    if print_for_people(&out) != ExitCode::SUCCESS {
        return ExitCode::from(FAILED);
    }
    if surveys.iter().any(|survey| !survey.is_complete()) {
        return ExitCode::from(UNREACHED);
    }
    if unapproved > 0 { ExitCode::from(DRIFT) } else { ExitCode::SUCCESS }
}

/// Describes the settings other than the servers' definitions.
fn frame(settings: &Settings) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        writeln!(out, "{key:<14}{value}").unwrap_or_default();
    };
    line("configuration", format!("sha256:{}", settings.digest));
    for listener in &settings.listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let ways = listener.schemes.iter().map(|scheme| match scheme {
            AuthScheme::Oauth => "oauth",
            AuthScheme::Certificate => "certificate",
            AuthScheme::ApiKey => "apiKey",
            AuthScheme::Anonymous => "anonymous",
        });
        let ways = ways.collect::<Vec<_>>().join(", ");
        line("listener", format!("{} {scheme}://{} ({ways})", listener.name, listener.address));
    }
    if let Some(ops) = &settings.ops {
        line("ops", format!("http://{}", ops.address));
    }
    for route in &settings.routes {
        let servers = route.servers.iter().filter_map(|index| settings.servers.get(*index));
        let servers: Vec<_> = servers.map(|server| server.name.as_str()).collect();
        line("route", format!("{} -> {}", route.path, servers.join(", ")));
    }
    for remark in ConfigRemark::all(settings) {
        match remark {
            ConfigRemark::Note(what) => line("names", what),
            ConfigRemark::Warning(what) => line("warning", what),
        }
    }
    for server in &settings.servers {
        let ServerTransport::Stdio(program) = &server.reach else { continue };
        let plan = program.sandbox.as_ref();
        line("sandbox", format!("{}: {}", server.name, kept(plan)));
        if let Some(sealed) = plan.and_then(|plan| sandbox::shown(&plan.sealed())) {
            line("", format!("{}: it {sealed}", server.name));
        }
    }
    for sink in &settings.audit.sinks {
        line("audit", format!("{} -> {}", sink.name, target(&sink.to)));
    }
    if let Some(capture) = &settings.audit.capture {
        let parts = [("arguments", capture.arguments), ("results", capture.results)];
        let parts = parts.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>();
        line("contents", format!("{} are recorded, redacted", parts.join(" and ")));
    }
    let pins = match settings.pins.mode {
        Mode::Enforce => "what is not approved is neither shown nor called",
        Mode::Audit => "what is not approved is only recorded",
        Mode::Off => "nothing has to be approved",
    };
    line("pins", format!("{} ({pins})", settings.pins.file.display()));
    line("rules", settings.policy.access().rules().len().to_string());
    out
}

/// Describes where an audit sink writes.
fn target(to: &SinkTarget) -> String {
    match to {
        SinkTarget::File(file, _) => file.display().to_string(),
        SinkTarget::Stdout => "standard output".to_owned(),
        SinkTarget::Http { .. } => "http".to_owned(),
        SinkTarget::Otlp(..) => "otlp".to_owned(),
        SinkTarget::Syslog(..) => "syslog".to_owned(),
    }
}

/// Describes how a program is sandboxed on this machine.
fn kept(plan: Option<&SandboxPlan>) -> String {
    let Some(plan) = plan else { return "none: it can do what the gateway can".to_owned() };
    let files = match plan.rest {
        UnlistedFiles::Listed => "the files that are listed but the gateway's own",
        UnlistedFiles::Any => "all files but the gateway's own",
    };
    let network = match &plan.network {
        NetworkAccess::None => "no network",
        NetworkAccess::Ports(_) => "the ports that are listed",
        NetworkAccess::Any => "the whole network",
    };
    let mode = if plan.required { "required" } else { "preferred" };
    let missing =
        plan.check().err().map(|error| format!("; not complete here: {}", ErrorChain(&error)));
    format!("{mode}, {files}, {network}{}", missing.unwrap_or_default())
}

/// Takes the policy from the settings, and loads it with the servers' definitions and the pins.
fn policy(settings: &mut Settings, surveys: &[ServerInventory], lock: Lockfile) -> Policy {
    let policy = std::mem::take(&mut settings.policy);
    let catalogs = surveys.iter().flat_map(|survey| survey.catalogs.iter().cloned());
    let shadows = ShadowingConflicts::among(catalogs, policy.routes());
    policy.shadow(&Arc::new(shadows));
    let (mode, lock) = (settings.pins.mode, Arc::new(lock));
    policy.pin(&Arc::new(Pins { mode, ..settings.pins.approving(lock) }));
    policy
}

/// Describes what each server offers. Returns how many definitions differ from the approved ones; 0 if pins are off.
fn servers(
    out: &mut String,
    settings: &Settings,
    surveys: &[ServerInventory],
    lock: &Lockfile,
) -> usize {
    let mut unapproved = 0;
    for survey in surveys {
        let server = settings.servers.iter().find(|server| server.name == survey.server);
        let reach = match server.map(|server| &server.reach) {
            // A variable may have put a secret into the path.
            Some(ServerTransport::Http(uri) | ServerTransport::HttpSse(uri)) => {
                let scheme = uri.scheme_str().unwrap_or_default();
                let host = uri.authority().map_or("", |authority| authority.as_str());
                format!("{scheme}://{host}")
            }
            Some(ServerTransport::Stdio(program)) => program.command.clone(),
            None => String::new(),
        };
        writeln!(out, "server        {} at {reach}", survey.server).unwrap_or_default();
        if let Some(why) = &survey.failed {
            writeln!(out, "              not reached: {why}").unwrap_or_default();
            continue;
        }
        let mut counts = BTreeMap::new();
        for catalog in &survey.catalogs {
            *counts.entry(catalog.kind()).or_insert(0) += catalog.offers().len();
        }
        let counts = counts.iter().filter(|(_, count)| **count > 0);
        let counts = counts.map(|(kind, count)| format!("{count} {}", kind.list()));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let different = match settings.pins.mode {
            Mode::Off => Vec::new(),
            Mode::Enforce | Mode::Audit => pin::unlike(settings, lock, survey).named,
        };
        let note = if different.is_empty() {
            String::new()
        } else {
            format!("; {} not as approved: {}", different.len(), different.join(", "))
        };
        writeln!(out, "              offers {counts}{note}").unwrap_or_default();
        for (kind, why) in &survey.unread {
            writeln!(out, "              {} not read: {why}", kind.list()).unwrap_or_default();
        }
        unapproved += different.len();
    }
    unapproved
}

/// Describes what each principal that the configuration names can see.
fn callers(
    out: &mut String,
    principals: &[Principal],
    policy: &Policy,
    surveys: &[ServerInventory],
) {
    let mut seen = std::collections::BTreeSet::new();
    for principal in principals.iter().filter(|one| seen.insert(one.id.clone())) {
        let groups: Vec<_> = principal.groups.iter().map(|group| group.as_str()).collect();
        let mut unseen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let parts = surveys.iter().filter(|survey| survey.failed.is_none()).map(|survey| {
            let (shown, all, hidden) = seen_by(principal, policy, survey);
            for (why, names) in hidden {
                unseen.entry(why).or_default().extend(names);
            }
            format!("{} {shown} of {all}", survey.server)
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        writeln!(out, "caller        {} ({}) sees: {parts}", principal.id, groups.join(", "))
            .unwrap_or_default();
        for (why, names) in unseen {
            let more = names.len().saturating_sub(NAMES);
            let mut list = names.into_iter().take(NAMES).collect::<Vec<_>>().join(", ");
            if more > 0 {
                write!(list, " and {more} more").unwrap_or_default();
            }
            writeln!(out, "              not {list}: {why}").unwrap_or_default();
        }
    }
}

/// How many definitions of a server a principal sees, how many there are, and the hidden ones by reason.
fn seen_by(
    principal: &Principal,
    policy: &Policy,
    survey: &ServerInventory,
) -> (usize, usize, BTreeMap<String, Vec<String>>) {
    let (mut shown, mut all) = (0, 0);
    let mut hidden: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let facts = policy.facts();
    for offer in survey.catalogs.iter().flat_map(|catalog| catalog.offers()) {
        all += 1;
        let decision = policy.about(&facts, principal, &survey.server, offer);
        match why::unseen(policy, &facts, &survey.server, offer, &decision) {
            None => shown += 1,
            Some(why) => {
                let name = why::thing(offer.kind(), offer.name().as_str());
                hidden.entry(why).or_default().push(format!("{}/{name}", survey.server));
            }
        }
    }
    (shown, all, hidden)
}
