//! `portcullis pin`: propose, look at, approve and sign what servers may say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, iter};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use gateway::clock::{Clock as _, System};
use gateway::file::replace;
use gateway::report::Chain;
use gateway::settings::lockfile::{self, LockError};
use gateway::settings::{Approvers, Settings, UNREADABLE};
use gateway::survey::{self, Survey};
use policy::drift::{self, Change, visible};
use policy::json::Fragment;
use policy::lock::{Lock, Locked, State, Version};
use policy::offer::{Kind, Offer};
use policy::pin::{Digest, Subject};
use policy::pins::{Pins, ResourcePins, Unfit};
use serde_json::json;

use super::{Output, complain, print, sarif, say};

/// A server says or offers something else than was approved.
const DRIFT: u8 = 4;
/// It was told to stop, as a shell says it of an interrupt.
const STOPPED: u8 = 130;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Pin {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    propose: Propose,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what servers offer now that is not as it was approved.
    Diff(Look),
    /// The same, for CI: exits with 4 when there is anything.
    Verify(Look),
    /// Approve what is proposed in the lockfile, all of it or what is named.
    Approve(Approve),
    /// Show what stands in the lockfile.
    List(List),
    /// Take an approval back.
    Revoke(Revoke),
    /// Sign the lockfile as one of `pins.keys`.
    Sign(Sign),
    /// Make a key to sign with, and print the line that admits it.
    Key {
        /// The file the private key is written to; it must not be there.
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(super) struct Propose {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    pub(super) config: PathBuf,
    /// Only these servers.
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
}

impl Propose {
    /// Every server of a configuration.
    pub(super) fn of(config: &Path) -> Self {
        Self { config: config.to_owned(), server: Vec::new() }
    }
}

#[derive(Debug, Args)]
struct Look {
    #[command(flatten)]
    which: Propose,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    format: Output,
}

#[derive(Debug, Args)]
struct Named {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Only of this server.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only these tools.
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Only these prompts.
    #[arg(long, value_name = "NAME")]
    prompt: Vec<String>,
    /// Only these resources and resource templates.
    #[arg(long, value_name = "URI")]
    resource: Vec<String>,
    /// Only the definition with this digest.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Who says so; your user name if not given.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct Approve {
    #[command(flatten)]
    named: Named,
    /// Keep what was approved before, while servers are upgraded one after the other.
    #[arg(long)]
    keep: bool,
    /// Approve that a server is at another URL, or another program, than before.
    #[arg(long, requires = "server")]
    identity: bool,
}

#[derive(Debug, Args)]
struct Revoke {
    #[command(flatten)]
    named: Named,
}

#[derive(Debug, Args)]
struct List {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    format: Output,
}

#[derive(Debug, Args)]
struct Sign {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Who signs: one of `pins.keys`.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The file with the private key, as `portcullis pin key` writes it.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

/// Which resources may be used that nobody has approved one by one, by server.
type ByServer = Arc<BTreeMap<Box<str>, ResourcePins>>;

/// Something that is not as it was approved.
#[derive(Debug)]
struct Difference {
    server: String,
    /// `tools/read_file`, or `server` for what it says of itself.
    thing: String,
    unfit: Unfit,
    digest: Option<Digest>,
    changes: Vec<Change>,
    /// What it seems to be under another name.
    former: Option<String>,
}

pub(super) fn run(pin: Pin) -> ExitCode {
    let done = match pin.verb {
        None => propose(&pin.propose),
        Some(Verb::Diff(look)) => differ(&look).map(|_| ExitCode::SUCCESS),
        Some(Verb::Verify(look)) => differ(&look).map(|clean| match clean {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(DRIFT),
        }),
        Some(Verb::Approve(approve)) => self::approve(&approve),
        Some(Verb::List(list)) => self::list(&list),
        Some(Verb::Revoke(revoke)) => self::revoke(&revoke.named),
        Some(Verb::Sign(sign)) => self::sign(&sign),
        Some(Verb::Key { file }) => key(&file),
    };
    done.unwrap_or_else(|code| code)
}

/// The lockfile as it is, unsigned or not: whoever changes it has it signed again.
fn locked(settings: &Settings) -> Result<Lock, ExitCode> {
    match lockfile::read(&settings.pins.file, &Approvers::default()) {
        Ok((lock, _)) => Ok(lock),
        Err(LockError::Missing(_)) => Ok(Lock::default()),
        Err(error) => Err(complain(&Chain(&error).to_string())),
    }
}

fn store(settings: &Settings, lock: &Lock) -> Result<(), ExitCode> {
    let file = &settings.pins.file;
    let text = lockfile::write(lock);
    // What cannot be read back is not written.
    if let Err(error) = lockfile::check(&text, lock) {
        return Err(complain(&format!("nothing was written: {error}")));
    }
    let written = replace(file, text.as_bytes());
    written.map_err(|error| complain(&format!("could not write `{}`: {error}", file.display())))
}

/// What the servers say now.
pub(super) fn ask(which: &Propose) -> Result<(Settings, Vec<Survey>), ExitCode> {
    let settings = super::settings(&which.config)?;
    let names: BTreeSet<_> = settings.servers.iter().map(|s| s.name.as_str().to_owned()).collect();
    if let Some(unknown) = which.server.iter().find(|name| !names.contains(*name)) {
        return Err(complain(&format!("there is no server `{}`", unknown.escape_debug())));
    }
    let again = super::settings(&which.config)?;
    super::log("warn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| complain(&format!("no threads: {error}")))?;
    let wanted = |name: &str| which.server.is_empty() || which.server.iter().any(|w| w == name);
    let surveys = runtime.block_on(async {
        let told_to_stop = super::told_to_stop();
        tokio::select! {
            surveys = survey::survey(again, wanted) => Some(surveys),
            () = told_to_stop => None,
        }
    });
    // What was started for it ends with it.
    runtime.shutdown_background();
    let Some(surveys) = surveys else {
        say("stopped before every server had answered; nothing was written");
        return Err(ExitCode::from(STOPPED));
    };
    let surveys = surveys.map_err(|error| complain(&Chain(&error).to_string()))?;
    for survey in surveys.iter() {
        if let Some(why) = &survey.failed {
            say(&format!("warning: the server `{}` could not be asked: {why}", survey.server));
        }
    }
    Ok((settings, surveys))
}

/// Everything that was found, in the order of the lockfile.
fn offers(survey: &Survey) -> impl Iterator<Item = &Offer> {
    survey.catalogs.iter().flat_map(|catalog| catalog.offers())
}

fn thing(kind: Kind, name: &str) -> String {
    format!("{}/{}", kind.list(), visible(name))
}

fn propose(which: &Propose) -> Result<ExitCode, ExitCode> {
    let (settings, surveys) = ask(which)?;
    let mut lock = locked(&settings)?;
    let (mut proposed, mut failed) = (0, false);
    for survey in &surveys {
        failed |= survey.failed.is_some();
        if survey.failed.is_some() {
            continue;
        }
        let locked = lock.servers.entry(survey.server.as_str().into()).or_default();
        let identity = survey.identity.as_str();
        match locked.identity.as_deref() {
            None if identity.starts_with(UNREADABLE) => {
                say(&format!("warning: `{}` is {identity}", survey.server));
            }
            None => locked.identity = Some(identity.into()),
            Some(known) if known != identity => {
                failed = true;
                say(&format!(
                    "warning: `{0}` is `{identity}` and was approved as `{known}`: nothing of it is \
                     proposed; if that is right, `portcullis pin approve --server {0} --identity`",
                    survey.server
                ));
                continue;
            }
            Some(_) => {}
        }
        let now: BTreeSet<Digest> = offers(survey).filter_map(Offer::digest).collect();
        let stale =
            |version: &Version| version.state != State::Pending || now.contains(&version.digest);
        locked.offers.values_mut().for_each(|versions| versions.retain(stale));
        locked.offers.retain(|_, versions| !versions.is_empty());
        for hello in &survey.hellos {
            if let (Some(said), Some(digest)) = (&hello.said, hello.digest) {
                proposed += usize::from(add(&mut locked.server, digest, said));
            }
        }
        let said: BTreeSet<_> = survey.hellos.iter().filter_map(|hello| hello.digest).collect();
        locked.server.retain(|v| v.state != State::Pending || said.contains(&v.digest));
        let approved = |digest: &Digest| {
            let mut of_digest = locked.server.iter().filter(|version| version.digest == *digest);
            of_digest.any(|version| version.state == State::Approved)
        };
        // A server that was not asked in both eras may still say what it was not heard to say.
        if !said.is_empty() && survey.whole && said.iter().all(approved) {
            // What it said before it was upgraded is no longer needed.
            locked.server.retain(|v| v.state == State::Revoked || said.contains(&v.digest));
        }
        for offer in offers(survey) {
            let name = offer.name().as_str();
            let Some(digest) = offer.digest() else {
                let thing = thing(offer.kind(), name);
                say(&format!(
                    "warning: `{}` {thing} cannot be pinned: {}",
                    survey.server,
                    Unfit::Unpinnable.note()
                ));
                continue;
            };
            let versions = locked.offers.entry((offer.kind(), name.into())).or_default();
            if !add(versions, digest, &offer.fragment()) {
                continue;
            }
            proposed += 1;
            let stays = |version: &&Version| {
                version.state == State::Approved && now.contains(&version.digest)
            };
            if versions.iter().any(|version| stays(&version)) {
                let thing = thing(offer.kind(), name);
                say(&format!(
                    "note: `{}` {thing} is offered in more than one form, to different clients: approve the new one with `--keep`",
                    survey.server
                ));
            }
            for finding in offer.findings() {
                say(&format!(
                    "warning: `{}` {}: {finding}",
                    survey.server,
                    thing(offer.kind(), name)
                ));
            }
        }
    }
    store(&settings, &lock)?;
    let file = settings.pins.file.display();
    let pending = lock.servers.values().any(|locked| {
        let mut versions = locked.offers.values().flatten().chain(&locked.server);
        versions.any(|version| version.state == State::Pending)
    });
    let next = match (pending, failed) {
        (true, _) => "; read it, then `portcullis pin approve`",
        (false, true) => "; nothing is there to be approved until the servers above can be asked",
        (false, false) => "; everything is approved already",
    };
    say(&format!("{proposed} proposed in `{file}`{next}"));
    Ok(if failed { ExitCode::from(super::FAILED) } else { ExitCode::SUCCESS })
}

/// Whether a definition was not known yet.
fn add(versions: &mut Vec<Version>, digest: Digest, definition: &Fragment) -> bool {
    if versions.iter().any(|version| version.digest == digest) {
        return false;
    }
    let definition = definition.clone();
    versions.push(Version { digest, state: State::Pending, by: None, at: None, definition });
    true
}

/// What is not as it was approved.
fn differences(lock: &Lock, resources: &ByServer, survey: &Survey) -> Vec<Difference> {
    let server = survey.server.as_str();
    let empty = Locked::default();
    let locked = lock.servers.get(server).unwrap_or(&empty);
    let resources = Arc::clone(resources);
    let mut pins = Pins { lock: Arc::new(lock.clone()), resources, ..Pins::default() };
    let mut found = Vec::new();
    let mut note = |thing: String, unfit, digest, changes, former| {
        let server = server.to_owned();
        found.push(Difference { server, thing, unfit, digest, changes, former });
    };
    if locked.identity.as_deref().is_some_and(|known| known != survey.identity) {
        note("server".to_owned(), Unfit::Identity, None, Vec::new(), None);
    }
    for hello in &survey.hellos {
        let Some(said) = &hello.said else { continue };
        let is = |v: &&Version| Some(v.digest) == hello.digest;
        match locked.server.iter().find(is).map(|version| version.state) {
            Some(State::Approved) => {}
            Some(State::Revoked) => {
                note("server".to_owned(), Unfit::Revoked, hello.digest, Vec::new(), None);
            }
            Some(State::Pending) | None => {
                let changes = drift::nearest(&locked.server, Subject::Server, said.value()).changes;
                let unfit = if changes.is_empty() { Unfit::NotApproved } else { Unfit::Changed };
                note("server".to_owned(), unfit, hello.digest, changes, None);
            }
        }
    }
    pins.strangers.clear();
    for catalog in &survey.catalogs {
        for offer in catalog.offers() {
            let (kind, name) = (offer.kind(), offer.name().as_str());
            let Some(unfit) = pins.unfit(server, kind, name, Some(offer)) else { continue };
            let versions = locked.versions(kind, name);
            let changes =
                drift::nearest(versions, Subject::Offer(kind), offer.definition()).changes;
            let former = drift::former_name(locked, catalog, offer);
            let former = former.filter(|former| !survey.offers(kind, former)).map(visible);
            note(thing(kind, name), unfit, offer.digest(), changes, former);
        }
    }
    let asked: BTreeSet<Kind> = survey.catalogs.iter().map(|catalog| catalog.kind()).collect();
    let gone = locked.offers.iter().filter(|((kind, name), versions)| {
        let approved = versions.iter().any(|version| version.state == State::Approved);
        // A resource that may be made at run time comes and goes.
        let gone = || pins.unfit(server, *kind, name, None).is_some();
        asked.contains(kind) && approved && !survey.offers(*kind, name) && gone()
    });
    for ((kind, name), _) in gone {
        note(thing(*kind, name), Unfit::Removed, None, Vec::new(), None);
    }
    found
}

/// What is not as it was approved, in words.
pub(super) fn unlike(lock: &Lock, resources: &ByServer, survey: &Survey) -> Vec<String> {
    let differences = differences(lock, resources, survey);
    differences.iter().map(|one| format!("{} ({})", one.thing, one.unfit)).collect()
}

/// Shows what is not as it was approved; whether there is nothing.
fn differ(look: &Look) -> Result<bool, ExitCode> {
    let (settings, surveys) = ask(&look.which)?;
    let lock = match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => lock,
        Err(error) => return Err(complain(&Chain(&error).to_string())),
    };
    let asked = surveys.iter().filter(|survey| survey.failed.is_none());
    let resources = &settings.pins.resources;
    let found: Vec<_> = asked.flat_map(|survey| differences(&lock, resources, survey)).collect();
    let file = settings.pins.file.display().to_string();
    let shown = match look.format {
        Output::Human => human(&found),
        Output::Json => as_json(&found),
        Output::Sarif => as_sarif(&found, &file),
    };
    print(&shown);
    if surveys.iter().any(|survey| survey.failed.is_some()) {
        return Err(ExitCode::from(super::FAILED));
    }
    Ok(found.is_empty())
}

fn human(found: &[Difference]) -> String {
    if found.is_empty() {
        return "everything is as it was approved\n".to_owned();
    }
    let mut out = String::new();
    for one in found {
        let Difference { server, thing, unfit, digest, changes, former } = one;
        writeln!(out, "{server} {thing}: {unfit} ({})", unfit.note()).unwrap_or_default();
        if let Some(digest) = digest {
            writeln!(out, "  {digest}").unwrap_or_default();
        }
        if let Some(former) = former {
            writeln!(out, "  seems to be `{former}` under another name").unwrap_or_default();
        }
        for change in changes {
            writeln!(out, "  {change}").unwrap_or_default();
            for (sign, text) in [('-', &change.before), ('+', &change.after)] {
                for line in text.iter().flat_map(|text| text.lines()) {
                    writeln!(out, "    {sign} {line}").unwrap_or_default();
                }
            }
        }
    }
    out
}

fn as_json(found: &[Difference]) -> String {
    let change = |change: &Change| {
        json!({
            "at": change.at, "risk": change.risk.as_str(), "what": change.what,
            "before": change.before, "after": change.after,
        })
    };
    let one = |one: &Difference| {
        json!({
            "server": one.server, "thing": one.thing, "reason": one.unfit.code(),
            "digest": one.digest.map(|digest| digest.to_string()), "formerName": one.former,
            "changes": one.changes.iter().map(change).collect::<Vec<_>>(),
        })
    };
    let all: Vec<_> = found.iter().map(one).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_sarif(found: &[Difference], file: &str) -> String {
    let one = |one: &Difference| {
        let changes = one.changes.iter().map(|change| format!("; {change}"));
        sarif::Result {
            rule: one.unfit.code(),
            level: "error",
            message: iter::once(one.unfit.note().to_owned()).chain(changes).collect(),
            file: file.to_owned(),
            thing: format!("{}/{}", one.server, one.thing),
        }
    };
    sarif::log(&found.iter().map(one).collect::<Vec<_>>())
}

impl Named {
    /// Whether it names nothing but a server.
    const fn is_of_all(&self) -> bool {
        self.tool.is_empty()
            && self.prompt.is_empty()
            && self.resource.is_empty()
            && self.digest.is_none()
    }

    fn wants(&self, server: &str, kind: Option<Kind>, name: &str, digest: Digest) -> bool {
        let any = self.tool.is_empty() && self.prompt.is_empty() && self.resource.is_empty();
        let list = match kind {
            Some(Kind::Tool) => &self.tool,
            Some(Kind::Prompt) => &self.prompt,
            _ => &self.resource,
        };
        let named = if any { true } else { kind.is_some() && list.iter().any(|n| n == name) };
        let of_digest = self.digest.as_deref().is_none_or(|wanted| wanted == digest.to_string());
        self.server.as_deref().is_none_or(|wanted| wanted == server) && named && of_digest
    }

    fn by(&self) -> Option<Box<str>> {
        let user = || env::var("USER").ok().filter(|user| !user.is_empty());
        self.by.clone().or_else(user).map(Into::into)
    }
}

/// Every version in the lockfile that is wanted, to be changed.
fn each(
    lock: &mut Lock,
    named: &Named,
    mut act: impl FnMut(&str, Option<(Kind, &str)>, &mut Vec<Version>, &[Digest]) -> usize,
) -> usize {
    let mut count = 0;
    for (server, locked) in &mut lock.servers {
        let wanted = |versions: &[Version], kind, name: &str| -> Vec<Digest> {
            let digests = versions.iter().map(|version| version.digest);
            digests.filter(|digest| named.wants(server, kind, name, *digest)).collect()
        };
        let digests = wanted(&locked.server, None, "");
        count += act(server, None, &mut locked.server, &digests);
        for ((kind, name), versions) in &mut locked.offers {
            let digests = wanted(versions, Some(*kind), name);
            count += act(server, Some((*kind, name)), versions, &digests);
        }
    }
    count
}

fn approve(approve: &Approve) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&approve.named.config)?;
    let mut lock = locked(&settings)?;
    let (by, at) = (approve.named.by(), now());
    // Who a server is and what it offers are two questions.
    let only_identity = approve.identity && approve.named.is_of_all();
    let mut count = each(&mut lock, &approve.named, |_, _, versions, wanted| {
        let mut approved = 0;
        if only_identity {
            return 0;
        }
        let is =
            |version: &Version| version.state == State::Pending && wanted.contains(&version.digest);
        // What a server says of itself has a version for each era it speaks; `portcullis pin` drops
        // those it no longer says.
        let of_server = versions.iter().any(|v| v.digest.subject() == Subject::Server);
        if versions.iter().any(is) && !approve.keep && !of_server {
            versions.retain(|version| version.state != State::Approved);
        }
        for version in versions.iter_mut().filter(|version| is(version)) {
            (version.state, version.by, version.at) =
                (State::Approved, by.clone(), Some(at.clone()));
            approved += 1;
        }
        approved
    });
    if let (true, Some(name)) = (approve.identity, &approve.named.server) {
        let server = settings.servers.iter().find(|server| server.name.as_str() == name);
        let Some((server, locked)) = server.zip(lock.servers.get_mut(&**name)) else {
            return Err(complain(&format!("there is no server `{}`", name.escape_debug())));
        };
        let identity = gateway::upstream::whois::of(server);
        if identity.starts_with(UNREADABLE) {
            return Err(complain(&format!("`{}` is {identity}", name.escape_debug())));
        }
        say(&format!("`{name}` is `{identity}`"));
        locked.identity = Some(identity.into());
        count += 1;
    }
    changed(&settings, &lock, count, "approved")
}

fn revoke(named: &Named) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&named.config)?;
    if named.server.is_none() && named.digest.is_none() {
        return Err(complain(
            "name what is revoked: `--server`, with `--tool` and the like, or `--digest`",
        ));
    }
    let mut lock = locked(&settings)?;
    let (by, at) = (named.by(), now());
    let count = each(&mut lock, named, |_, _, versions, wanted| {
        let mut revoked = 0;
        let is = |v: &Version| v.state != State::Revoked && wanted.contains(&v.digest);
        for version in versions.iter_mut().filter(|version| is(version)) {
            (version.state, version.by, version.at) =
                (State::Revoked, by.clone(), Some(at.clone()));
            revoked += 1;
        }
        revoked
    });
    changed(&settings, &lock, count, "revoked")
}

fn changed(
    settings: &Settings,
    lock: &Lock,
    count: usize,
    what: &str,
) -> Result<ExitCode, ExitCode> {
    if count == 0 {
        return Err(complain(&format!("nothing was {what}: nothing in the lockfile is meant")));
    }
    store(settings, lock)?;
    let sign = if settings.pins.approvers.keys.is_empty() {
        ""
    } else {
        "; have it signed: `portcullis pin sign`"
    };
    say(&format!("{count} {what} in `{}`{sign}", settings.pins.file.display()));
    Ok(ExitCode::SUCCESS)
}

fn now() -> Box<str> {
    humantime::format_rfc3339_seconds(System.now()).to_string().into()
}

fn list(list: &List) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&list.config)?;
    let lock = match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => lock,
        Err(error) => return Err(complain(&Chain(&error).to_string())),
    };
    let mut rows = Vec::new();
    for (server, locked) in &lock.servers {
        let of_server = locked.server.iter().map(|version| ("server".to_owned(), version));
        let offers = locked.offers.iter().flat_map(|((kind, name), versions)| {
            versions.iter().map(move |version| (thing(*kind, name), version))
        });
        rows.extend(of_server.chain(offers).map(|(thing, version)| (&**server, thing, version)));
    }
    let field = |version: &Version| {
        let fields = Digest::of_fields(version.digest.subject(), version.definition.value());
        let fields = fields.unwrap_or_default().into_iter();
        fields.map(|(name, digest)| (name.into(), digest.to_string().into())).collect()
    };
    let row = |(server, thing, version): &(&str, String, &Version)| {
        json!({
            "server": server, "thing": thing, "digest": version.digest.to_string(),
            "state": version.state.as_str(), "by": version.by, "at": version.at,
            "fields": serde_json::Value::Object(field(version)),
        })
    };
    match list.format {
        Output::Json => {
            let rows: Vec<_> = rows.iter().map(row).collect();
            Ok(print(&(serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n")))
        }
        Output::Sarif => Err(complain("a list is no set of findings: use `human` or `json`")),
        Output::Human => {
            let mut out = String::new();
            for (server, thing, version) in rows {
                let by = version.by.as_deref().unwrap_or_default();
                let (state, digest) = (version.state.as_str(), version.digest);
                writeln!(out, "{state:<9}{server} {thing}  {digest}  {by}").unwrap_or_default();
            }
            Ok(print(&out))
        }
    }
}

fn sign(sign: &Sign) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&sign.config)?;
    let (file, keys) = (&settings.pins.file, &settings.pins.approvers.keys);
    let fail =
        |what: &str, error: &dyn std::fmt::Display| Err(complain(&format!("{what}: {error}")));
    let text = match lockfile::read(file, &Approvers::default()) {
        Ok((_, text)) => text,
        Err(error) => return fail("not signed", &Chain(&error)),
    };
    let key = match fs::read_to_string(&sign.key) {
        Ok(key) => key,
        Err(error) => return fail(&format!("could not read `{}`", sign.key.display()), &error),
    };
    let key = STANDARD.decode(key.trim()).ok();
    let Some(pair) = key.and_then(|key| Ed25519KeyPair::from_pkcs8(&key).ok()) else {
        return Err(complain("this is not a key that `portcullis pin key` has made"));
    };
    let known = keys.iter().find(|(name, _)| **name == *sign.name);
    if known.is_none_or(|(_, public)| pair.public_key().as_ref() != public) {
        let name = sign.name.escape_debug();
        return Err(complain(&format!("`pins.keys` has no `{name}` with this key")));
    }
    let path = lockfile::signatures(file);
    let others = fs::read_to_string(&path).unwrap_or_default();
    // Signatures of an earlier content are of no use to anybody.
    let message = lockfile::message(&text);
    let good = |line: &&str| {
        let Some((name, signature)) = line.split_once(' ') else { return false };
        let signature = STANDARD.decode(signature).unwrap_or_default();
        let key = keys.iter().find(|(known, _)| **known == *name);
        name != sign.name
            && key.is_some_and(|(_, key)| lockfile::is_signed(key, &message, &signature))
    };
    let mut lines: Vec<String> = others.lines().filter(good).map(str::to_owned).collect();
    lines.push(format!("{} {}", sign.name, STANDARD.encode(pair.sign(&message).as_ref())));
    lines.sort();
    match replace(&path, (lines.join("\n") + "\n").as_bytes()) {
        Ok(()) => {
            say(&format!("`{}` has {} signatures", path.display(), lines.len()));
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => fail(&format!("could not write `{}`", path.display()), &error),
    }
}

fn key(file: &Path) -> Result<ExitCode, ExitCode> {
    let random = aws_lc_rs::rand::SystemRandom::new();
    let Ok(document) = Ed25519KeyPair::generate_pkcs8(&random) else {
        return Err(complain("the machine gave no random bytes"));
    };
    let Ok(pair) = Ed25519KeyPair::from_pkcs8(document.as_ref()) else {
        return Err(complain("the key cannot be used"));
    };
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let text = STANDARD.encode(document.as_ref()) + "\n";
    match opened.and_then(|mut out| out.write_all(text.as_bytes())) {
        Ok(()) => Ok(print(&format!(
            "- {{name: YOU, ed25519: {}}}\n",
            STANDARD.encode(pair.public_key().as_ref())
        ))),
        Err(error) => Err(complain(&format!("could not write `{}`: {error}", file.display()))),
    }
}
