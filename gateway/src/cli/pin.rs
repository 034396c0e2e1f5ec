//! `portcullis pin`: proposes, lists, approves, revokes and signs definitions in the lockfile.

mod approve;
mod asked;
mod propose;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, iter};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use detection::inspect::Finding;
use gateway::base::clock::{Clock as _, SystemClock};
use gateway::base::error_chain::ErrorChain;
use gateway::base::file::{replace, replace_while};
use gateway::base::masking;
use gateway::config::settings::lockfile::{self, LONGEST_REASON, LockError};
use gateway::config::settings::{Approvers, Settings};
use gateway::control::inventory::ServerInventory;
use gateway::mcp::model_text::model_tokens;
use gateway::pins::{gone_advice, volatile_advice, volatile_entry};
use policy::definition::alike::Regeneration;
use policy::definition::drift::{self, DefinitionChange, visible};
use policy::definition::lock::{
    ApprovalState, LockedServer, LockedVersion, Lockfile, RecordedEvaluation,
};
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::definition::pin::{Digest, DigestSubject};
use policy::definition::pins::{PinViolation, Pins, volatile_members};
use policy::engine::pipeline::Policy;
use policy_core::subject::mode::{FindingTreatment, Mode};
use policy_core::subject::skill;
use serde_json::json;

use super::printable::in_a_line;
use super::why::{self, thing};
use super::{FindingsFormat, OutputFormat, complain, print, print_for_people, sarif, say};
use approve::ApproveArgs;
pub(super) use asked::{SurveyArgs, ask, patience};

/// Exit code: a server offers definitions other than those that are approved.
const DRIFT: u8 = 4;
/// Exit code: interrupted by a signal, by the convention of shells.
const STOPPED: u8 = 130;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct PinArgs {
    #[command(subcommand)]
    verb: Option<PinCommand>,
    #[command(flatten)]
    propose: SurveyArgs,
}

#[derive(Debug, Subcommand)]
enum PinCommand {
    /// Show how the definitions that servers offer now differ from the approved ones. Starts the programs of stdio
    /// servers, also one whose identity is not the approved one.
    Diff(PinDiffArgs),
    /// Like `diff`, for CI: exits with 4 if there is a difference. Starts the programs like `diff`.
    Verify(PinDiffArgs),
    /// Approve what the lockfile proposes: all of it, or the definitions that are named.
    Approve(Box<ApproveArgs>),
    /// Show the definitions in the lockfile.
    List(PinListArgs),
    /// Revoke an approval, or refuse a proposed definition. A revoked definition stays refused, also if it is proposed
    /// again.
    Revoke(PinRevokeArgs),
    /// Sign the lockfile with one of `pins.keys`.
    Sign(PinSignArgs),
    /// Make a signing key, and print the line for `pins.keys` that admits it.
    Key {
        /// The file to write the private key to. It must not exist.
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct PinDiffArgs {
    #[command(flatten)]
    which: SurveyArgs,
    /// Output format of the differences.
    #[arg(long, value_enum, default_value_t = FindingsFormat::Human)]
    format: FindingsFormat,
}

#[derive(Clone, Debug, Args)]
struct PinSelector {
    /// What to change: `SERVER/TOOL`, `SERVER/prompts/NAME`, `SERVER/resources/URI`, `SERVER/skills/NAME`, or `SERVER` for
    /// all of its definitions.
    #[arg(value_name = "SERVER[/NAME]", conflicts_with = "server")]
    thing: Option<String>,
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Only definitions of this server.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only tools with these names.
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Only prompts with these names.
    #[arg(long, value_name = "NAME")]
    prompt: Vec<String>,
    /// Only these resources and resource templates.
    #[arg(long, value_name = "URI")]
    resource: Vec<String>,
    /// Only these skills: the path of a skill, or its URI.
    #[arg(long, value_name = "NAME")]
    skill: Vec<String>,
    /// Only the server's description of itself: its instructions, its capabilities and its name.
    #[arg(long)]
    itself: bool,
    /// Only the definition with this digest.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Who makes the change. Default: your user name.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct PinRevokeArgs {
    #[command(flatten)]
    named: PinSelector,
    /// Only definitions that are proposed and not approved yet. They are refused, and earlier approvals stay.
    #[arg(long)]
    pending: bool,
    /// The reason, which is written to the lockfile.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct PinListArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Output format of the list.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
    /// Show how many tokens each tool takes in the context of a model.
    #[arg(long)]
    tokens: bool,
}

#[derive(Debug, Args)]
struct PinSignArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// The name of the signer in `pins.keys`.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The file with the private key, as written by `portcullis pin key`.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

/// A definition that is not as it was approved.
#[derive(Debug)]
struct Difference {
    server: String,
    /// Path such as `tools/read_file`, or `server` for the server's description of itself.
    thing: String,
    unfit: PinViolation,
    digest: Option<Digest>,
    changes: Vec<DefinitionChange>,
    /// Approved name of a removed definition that this one resembles.
    former: Option<String>,
    /// The approved and the present identity of the server, if they differ.
    identity: Option<IdentityChange>,
}

/// The identity of a server that is not the approved one.
#[derive(Debug)]
struct IdentityChange {
    approved: String,
    now: String,
}

/// How a changed identity of a server is approved. Its definitions are only read once it is.
fn identity_mend(server: &str) -> String {
    format!(
        "`portcullis pin approve --server {server} --identity`, then `portcullis pin` and `portcullis pin approve` for \
         what it offers now"
    )
}

pub(super) fn run(pin: PinArgs) -> ExitCode {
    let done = match pin.verb {
        None => propose::propose(&pin.propose),
        Some(PinCommand::Diff(look)) => differ(&look).map(|_| ExitCode::SUCCESS),
        Some(PinCommand::Verify(look)) => differ(&look).map(|clean| match clean {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(DRIFT),
        }),
        Some(PinCommand::Approve(approve)) => approve::approve(&approve),
        Some(PinCommand::List(list)) => self::list(&list),
        Some(PinCommand::Revoke(revoke)) => self::revoke(&revoke),
        Some(PinCommand::Sign(sign)) => self::sign(&sign),
        Some(PinCommand::Key { file }) => key(&file),
    };
    done.unwrap_or_else(|code| code)
}

/// Content of the lockfile when it was read; `None` if it did not exist.
pub(super) struct LockfileSnapshot(Option<Vec<u8>>);

impl LockfileSnapshot {
    /// Whether `file` still has this content.
    fn is_in(&self, file: &Path) -> bool {
        match fs::read(file) {
            Ok(now) => self.0.as_ref() == Some(&now),
            Err(error) => error.kind() == io::ErrorKind::NotFound && self.0.is_none(),
        }
    }
}

/// Reads the lockfile without checking signatures, because a change has to be signed again, and returns its content
/// too.
pub(super) fn locked(settings: &Settings) -> Result<(Lockfile, LockfileSnapshot), ExitCode> {
    match lockfile::read(&settings.pins.file, &Approvers::default()) {
        Ok((lock, text)) => Ok((lock, LockfileSnapshot(Some(text)))),
        Err(LockError::Missing(_)) => Ok((Lockfile::default(), LockfileSnapshot(None))),
        Err(error) => Err(complain(&ErrorChain(&error).to_string())),
    }
}

/// The approvals that are in force under a configuration: those of a gateway that starts now.
pub(super) fn in_force(settings: &Settings) -> Result<Pins, ExitCode> {
    let approving = |lock| Ok(settings.pins.approving(Arc::new(lock)));
    if settings.pins.mode == Mode::Off {
        return approving(Lockfile::default());
    }
    match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => approving(lock),
        Err(LockError::Missing(_)) => approving(Lockfile::default()),
        Err(error) => Err(complain(&ErrorChain(&error).to_string())),
    }
}

/// Writes the lockfile if it still has the content `former`: another process may have revoked something meanwhile, and
/// that must not be undone.
fn store(settings: &Settings, lock: &Lockfile, former: &LockfileSnapshot) -> Result<(), ExitCode> {
    let file = &settings.pins.file;
    let text = lockfile::write(lock);
    // Verify that the text can be read back before it replaces the file.
    if let Err(error) = lockfile::check(&text, lock) {
        return Err(complain(&format!("nothing was written: {error}")));
    }
    let (mut is_same, shown) = (true, file.display());
    let written = replace_while(file, text.as_bytes(), || {
        is_same = former.is_in(file);
        is_same
    });
    written.map_err(|error| match is_same {
        true => complain(&format!("could not write `{shown}`: {error}")),
        false => complain(&format!(
            "nothing was written: somebody else has changed `{shown}` meanwhile; run the command again"
        )),
    })
}

/// Every definition of a survey, in the order of the lockfile.
fn offers(survey: &ServerInventory) -> impl Iterator<Item = &CatalogItem> {
    survey.catalogs.iter().flat_map(|catalog| catalog.offers())
}

/// Compares the definitions of a survey with the approved ones.
fn differences(settings: &Settings, lock: &Lockfile, survey: &ServerInventory) -> Vec<Difference> {
    let server = survey.server.as_str();
    let empty = LockedServer::default();
    let locked = lock.servers.get(server).unwrap_or(&empty);
    let pins = settings.pins.approving(Arc::new(lock.clone()));
    let mut found = Vec::new();
    let is_other = |known: &&str| !masking::is_same_identity(known, &survey.identity);
    if let Some(known) = locked.identity.as_deref().filter(is_other) {
        let identity = IdentityChange { approved: known.to_owned(), now: survey.identity.clone() };
        found.push(Difference {
            server: server.to_owned(),
            thing: "server".to_owned(),
            unfit: PinViolation::Identity,
            digest: None,
            changes: Vec::new(),
            former: None,
            identity: Some(identity),
        });
    }
    let mut note = |thing: String, unfit, digest, changes, former| {
        let server = server.to_owned();
        found.push(Difference { server, thing, unfit, digest, changes, former, identity: None });
    };
    for server_info in &survey.server_infos {
        let Some(said) = &server_info.said else { continue };
        let is = |v: &&LockedVersion| Some(v.digest) == server_info.digest;
        match locked.server.iter().find(is).map(|version| version.state) {
            Some(ApprovalState::Approved) => {}
            Some(ApprovalState::Revoked) => {
                note(
                    "server".to_owned(),
                    PinViolation::Revoked,
                    server_info.digest,
                    Vec::new(),
                    None,
                );
            }
            Some(ApprovalState::Pending) | None => {
                let changes =
                    drift::nearest(&locked.server, DigestSubject::Server, said.value()).changes;
                let unfit = if changes.is_empty() {
                    PinViolation::NotApproved
                } else {
                    PinViolation::Changed
                };
                note("server".to_owned(), unfit, server_info.digest, changes, None);
            }
        }
    }
    for catalog in &survey.catalogs {
        for offer in catalog.offers() {
            let (kind, name) = (offer.kind(), offer.name().as_str());
            let Some(unfit) = pins.unfit(server, kind, name, Some(offer)) else { continue };
            let versions = locked.versions(kind, name);
            let changes =
                drift::nearest(versions, DigestSubject::Offer(kind), offer.definition()).changes;
            let former = drift::former_name(locked, catalog, offer);
            let former = former.filter(|former| !survey.offers(kind, former)).map(visible);
            note(thing(kind, name), unfit, offer.digest(), changes, former);
        }
    }
    let asked: BTreeSet<ItemKind> = survey.catalogs.iter().map(|catalog| catalog.kind()).collect();
    let gone = locked.offers.iter().filter(|((kind, name), versions)| {
        let approved = versions.iter().any(|version| version.state == ApprovalState::Approved);
        // A resource that may be created at run time can disappear without being a difference.
        let gone = || pins.unfit(server, *kind, name, None).is_some();
        asked.contains(kind) && approved && !survey.offers(*kind, name) && gone()
    });
    for ((kind, name), _) in gone {
        note(thing(*kind, name), PinViolation::Removed, None, Vec::new(), None);
    }
    found
}

/// The advice to add members to `pins.volatile`, if a tool definition differs from the approved one only in the order
/// within defaults: it would change again at every start, so no approval would last.
fn volatile(
    settings: &Settings,
    server: &str,
    offer: Option<(ItemKind, &str)>,
    versions: &[LockedVersion],
    version: &LockedVersion,
) -> Option<String> {
    let (ItemKind::Tool, tool) = offer? else { return None };
    let known = settings.pins.volatile.get(&(server.into(), ItemKind::Tool, tool.into()));
    let known = known.map_or(&[][..], Vec::as_slice);
    let members =
        volatile_members(versions, version.definition.value(), known, Regeneration::Reordered);
    let entry = || volatile_entry(server, tool, &members);
    (!members.is_empty()).then(|| volatile_advice(entry().as_deref(), Regeneration::Reordered))
}

/// The differences of a survey from what is approved, in words.
#[derive(Debug, Default)]
pub(super) struct UnapprovedThings {
    /// One item for each definition, and one for the identity of the server.
    pub(super) named: Vec<String>,
    /// How they are looked at and approved.
    pub(super) mend: String,
}

/// The command that evaluates tools and records the results.
const EVALUATE: &str = "`portcullis eval FOLDER -c FILE --record`";

/// The differences of a survey as text.
pub(super) fn unlike(
    settings: &Settings,
    lock: &Lockfile,
    survey: &ServerInventory,
) -> UnapprovedThings {
    let differences = differences(settings, lock, survey);
    let is_evaluation = |one: &Difference| {
        matches!(one.unfit, PinViolation::Unevaluated | PinViolation::EvaluationFailed)
    };
    // `pin` proposes nothing of a server with another identity.
    let approve = match differences.iter().any(|one| one.identity.is_some()) {
        true => format!("if that is right: {}", identity_mend(survey.server.as_str())),
        false if !differences.is_empty() && differences.iter().all(is_evaluation) => {
            format!("{EVALUATE} evaluates it")
        }
        false if differences.iter().any(is_evaluation) => format!(
            "`portcullis pin` and `portcullis pin approve` approve it, {EVALUATE} evaluates what is approved"
        ),
        false => "`portcullis pin` and `portcullis pin approve` approve it".to_owned(),
    };
    UnapprovedThings {
        named: differences.iter().map(|one| format!("{} ({})", one.thing, one.unfit)).collect(),
        mend: format!("`portcullis pin diff` shows how; {approve}"),
    }
}

/// Prints the differences. Returns whether there are none.
fn differ(look: &PinDiffArgs) -> Result<bool, ExitCode> {
    let (settings, surveys) = ask(&look.which)?;
    let lock = match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => lock,
        Err(error) => return Err(complain(&ErrorChain(&error).to_string())),
    };
    let asked = surveys.iter().filter(|survey| survey.failed.is_none());
    let found: Vec<_> = asked.flat_map(|survey| differences(&settings, &lock, survey)).collect();
    let file = settings.pins.file.display().to_string();
    match look.format {
        FindingsFormat::Human => print_for_people(&human(&found, &surveys)),
        FindingsFormat::Json => print(&as_json(&found)),
        FindingsFormat::Sarif => print(&as_sarif(&found, &file)),
    };
    if surveys.iter().any(|survey| survey.failed.is_some()) {
        return Err(ExitCode::from(super::FAILED));
    }
    // Differences take precedence over an incomplete list: they stay when the rest is read.
    if found.is_empty() && surveys.iter().any(|survey| !survey.is_complete()) {
        return Err(ExitCode::from(super::INCOMPLETE));
    }
    Ok(found.is_empty())
}

fn human(found: &[Difference], surveys: &[ServerInventory]) -> String {
    let unknown: Vec<_> = surveys.iter().filter_map(unknown).collect();
    let unknown = unknown.join(", ");
    let is_any_asked = surveys.iter().any(|survey| survey.failed.is_none());
    let mut out = match (found.is_empty(), unknown.is_empty(), is_any_asked) {
        (true, true, _) => "everything is as it was approved\n".to_owned(),
        (true, false, true) => {
            format!("what could be read is as it was approved; {unknown}\n")
        }
        (true, false, false) => format!("nothing is known: {unknown}\n"),
        (false, true, _) => String::new(),
        (false, false, _) => format!("{unknown}; of the rest:\n"),
    };
    for one in found {
        let Difference { server, thing, unfit, digest, changes, former, identity } = one;
        writeln!(out, "{server} {thing}: {unfit} ({})", unfit.note()).unwrap_or_default();
        if let Some(digest) = digest {
            writeln!(out, "  {digest}").unwrap_or_default();
        }
        if let Some(former) = former {
            writeln!(out, "  seems to be `{former}` under another name").unwrap_or_default();
        }
        if let Some(IdentityChange { approved, now }) = identity {
            let mend = identity_mend(server);
            writeln!(out, "    - {approved}\n    + {now}\n  if that is right: {mend}")
                .unwrap_or_default();
        }
        if *unfit == PinViolation::Removed {
            writeln!(out, "  {}", gone_advice(server, thing)).unwrap_or_default();
        }
        out.push_str(&changes_in_words(changes));
    }
    out
}

/// The part of a server that could not be read; `None` if all was.
fn unknown(survey: &ServerInventory) -> Option<String> {
    if survey.failed.is_some() {
        return Some(format!("`{}` could not be asked", survey.server));
    }
    let kinds: BTreeSet<_> = survey.unread.iter().map(|(kind, _)| kind.list()).collect();
    let kinds: Vec<_> = kinds.into_iter().collect();
    let kinds = kinds.join(" and ");
    (!kinds.is_empty()).then(|| format!("the {kinds} of `{}` could not be read", survey.server))
}

/// Formats changes with the old and the new text, line by line.
fn changes_in_words(changes: &[DefinitionChange]) -> String {
    let mut out = String::new();
    for change in changes {
        writeln!(out, "  {change}").unwrap_or_default();
        for (sign, text) in [('-', &change.before), ('+', &change.after)] {
            for line in text.iter().flat_map(|text| text.lines()) {
                writeln!(out, "    {sign} {line}").unwrap_or_default();
            }
        }
    }
    out
}

fn as_json(found: &[Difference]) -> String {
    let change = |change: &DefinitionChange| {
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
            "identity": one.identity.as_ref().map(|identity| {
                json!({ "approved": identity.approved, "now": identity.now })
            }),
        })
    };
    let all: Vec<_> = found.iter().map(one).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_sarif(found: &[Difference], file: &str) -> String {
    let one = |one: &Difference| {
        let changes = one.changes.iter().map(|change| format!("; {change}"));
        sarif::SarifResult {
            rule: one.unfit.code(),
            level: "error",
            message: iter::once(one.unfit.note().to_owned()).chain(changes).collect(),
            file: file.to_owned(),
            thing: format!("{}/{}", one.server, one.thing),
        }
    };
    sarif::log(&found.iter().map(one).collect::<Vec<_>>())
}

impl PinSelector {
    /// Resolves `thing` into the server and the list that it names.
    fn target(&self) -> Result<Self, String> {
        let mut named = self.clone();
        let Some(thing) = &self.thing else { return Ok(named) };
        let (server, rest) = match thing.split_once('/') {
            None => (thing.as_str(), None),
            Some((server, rest)) => (server, Some(rest)),
        };
        if server.is_empty() || rest.is_some_and(str::is_empty) {
            return Err("name a server, or a thing of one: `SERVER/TOOL`".to_owned());
        }
        named.server = Some(server.to_owned());
        let Some(rest) = rest else { return Ok(named) };
        let (list, name) = match rest.split_once('/') {
            Some(("tools", name)) => (&mut named.tool, name),
            Some(("prompts", name)) => (&mut named.prompt, name),
            Some(("resources" | "resourceTemplates", name)) => (&mut named.resource, name),
            Some(("skills", name)) => (&mut named.skill, name),
            _ => (&mut named.tool, rest),
        };
        list.push(name.to_owned());
        Ok(named)
    }

    /// Whether nothing restricts the definitions of the server.
    const fn is_of_all(&self) -> bool {
        self.tool.is_empty()
            && self.prompt.is_empty()
            && self.resource.is_empty()
            && self.skill.is_empty()
            && !self.itself
            && self.digest.is_none()
    }

    /// Whether no server and no definition is named.
    const fn is_everything(&self) -> bool {
        self.server.is_none() && self.is_of_all()
    }

    fn wants(&self, server: &str, kind: Option<ItemKind>, name: &str, digest: Digest) -> bool {
        let any = self.tool.is_empty()
            && self.prompt.is_empty()
            && self.resource.is_empty()
            && self.skill.is_empty()
            && !self.itself;
        let list = match kind {
            Some(ItemKind::Tool) => &self.tool,
            Some(ItemKind::Prompt) => &self.prompt,
            _ => &self.resource,
        };
        let named = any
            || match kind {
                Some(ItemKind::Skill) => self.skill.iter().any(|n| skill::uri_of(n) == name),
                Some(_) => list.iter().any(|n| n == name),
                None => self.itself,
            };
        let of_digest = self.digest.as_deref().is_none_or(|wanted| wanted == digest.to_string());
        self.server.as_deref().is_none_or(|wanted| wanted == server) && named && of_digest
    }

    fn by(&self) -> Option<Box<str>> {
        self.by.clone().or_else(user).map(Into::into)
    }
}

/// The user name according to the environment.
fn user() -> Option<String> {
    env::var("USER").ok().filter(|user| !user.is_empty())
}

/// The ` --by NAME` that `portcullis pin approve` needs if `$USER` is not set.
pub(super) fn by_option() -> &'static str {
    if user().is_none() { " --by NAME" } else { "" }
}

/// Calls `act` for every definition in the lockfile, with the digests of the versions that `named` selects. Returns the
/// sum of the results.
fn each(
    lock: &mut Lockfile,
    named: &PinSelector,
    mut act: impl FnMut(&str, Option<(ItemKind, &str)>, &mut Vec<LockedVersion>, &[Digest]) -> usize,
) -> usize {
    let mut count = 0;
    for (server, locked) in &mut lock.servers {
        let wanted = |versions: &[LockedVersion], kind, name: &str| -> Vec<Digest> {
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

fn revoke(revoke: &PinRevokeArgs) -> Result<ExitCode, ExitCode> {
    let named = revoke.named.target().map_err(|why| complain(&why))?;
    let reason = checked(revoke.reason.as_deref()).map_err(|why| complain(&why))?;
    let settings = super::settings(&named.config)?;
    if named.server.is_none() && named.digest.is_none() {
        return Err(complain(
            "name what is revoked: `SERVER/NAME`, `--server`, with `--tool` and the like, or `--digest`",
        ));
    }
    let (mut lock, former) = locked(&settings)?;
    let (by, at) = (named.by(), now());
    let mut before = 0;
    let count = each(&mut lock, &named, |_, _, versions, wanted| {
        let mut revoked = 0;
        for version in versions.iter_mut().filter(|version| wanted.contains(&version.digest)) {
            let is_meant = match version.state {
                ApprovalState::Pending => true,
                ApprovalState::Approved => !revoke.pending,
                ApprovalState::Revoked => {
                    before += 1;
                    false
                }
            };
            if is_meant {
                (version.state, version.by, version.at) =
                    (ApprovalState::Revoked, by.clone(), Some(at.clone()));
                version.exceptions.clear();
                version.reason = reason.map(Into::into);
                revoked += 1;
            }
        }
        revoked
    });
    if count == 0 && before > 0 {
        return Err(complain(match revoke.pending {
            true => "nothing was revoked: nothing that is named is pending",
            false => "nothing was revoked: all that is named was revoked before",
        }));
    }
    changed(&settings, &lock, &former, LockfileEdit { count, what: "revoked" })
}

/// Trims a reason and checks its length in bytes.
fn checked(reason: Option<&str>) -> Result<Option<&str>, String> {
    let reason = reason.map(str::trim);
    if reason.is_some_and(str::is_empty) {
        return Err("`--reason` is empty: say why, for those who read the lockfile".to_owned());
    }
    if reason.is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(format!("`--reason` is longer than {LONGEST_REASON} bytes"));
    }
    Ok(reason)
}

/// The command that approves a revoked definition again. `thing` is `tools/NAME`, or `server` for the server's
/// description of itself.
fn taking_back(server: &str, thing: &str) -> String {
    // The server chose the name, and the operator pastes it into a shell.
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    let tool = thing.strip_prefix("tools/").filter(|name| !name.contains('/'));
    let named = match thing {
        "server" => format!("{server} --itself"),
        thing if thing.chars().all(plain) => format!("{server}/{}", tool.unwrap_or(thing)),
        _ => "SERVER/NAME".to_owned(),
    };
    format!("portcullis pin approve {named} --revoked --reason TEXT")
}

/// What a command did to the lockfile.
#[derive(Clone, Copy)]
pub(super) struct LockfileEdit {
    /// The number of definitions that were changed.
    pub(super) count: usize,
    /// The word for what was done to them.
    pub(super) what: &'static str,
}

/// Writes the lockfile, and reports how many definitions were changed. None is an error.
pub(super) fn changed(
    settings: &Settings,
    lock: &Lockfile,
    former: &LockfileSnapshot,
    LockfileEdit { count, what }: LockfileEdit,
) -> Result<ExitCode, ExitCode> {
    if count == 0 {
        return Err(complain(&format!(
            "nothing was {what}: nothing in the lockfile is meant; `portcullis pin list` shows what stands there, and \
             `portcullis pin` adds what the servers offer now"
        )));
    }
    store(settings, lock, former)?;
    let sign = if settings.pins.approvers.keys.is_empty() {
        ""
    } else {
        "; have it signed before the gateway reads it: `portcullis pin sign --name NAME --key FILE`"
    };
    say(&format!("{count} {what} in `{}`{sign}", settings.pins.file.display()));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn now() -> Box<str> {
    humantime::format_rfc3339_seconds(SystemClock.now()).to_string().into()
}

fn list(list: &PinListArgs) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&list.config)?;
    let lock = match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => lock,
        Err(error) => return Err(complain(&ErrorChain(&error).to_string())),
    };
    let mut rows = Vec::new();
    for (server, locked) in &lock.servers {
        let of_server = locked.server.iter().map(|version| ("server".to_owned(), version));
        let offers = locked.offers.iter().flat_map(|((kind, name), versions)| {
            versions.iter().map(move |version| (thing(*kind, name), version))
        });
        rows.extend(of_server.chain(offers).map(|(thing, version)| (&**server, thing, version)));
    }
    let advice = |server: &str, thing: &str, version: &LockedVersion| {
        let locked = lock.servers.get(server)?;
        let named =
            locked.offers.iter().find(|((kind, name), _)| self::thing(*kind, name) == thing);
        let ((kind, name), versions) = named?;
        volatile(&settings, server, Some((*kind, name)), versions, version)
    };
    let tokens = |thing: &str, version: &LockedVersion| {
        let is_counted = list.tokens && thing.starts_with("tools/");
        is_counted.then(|| model_tokens(version.definition.value()))
    };
    match list.format {
        OutputFormat::Json => {
            let row = |(server, thing, version): &(&str, String, &LockedVersion)| {
                let mut row = row(&settings.policy, server, thing, version);
                if let (Some(row), Some(tokens)) = (row.as_object_mut(), tokens(thing, version)) {
                    row.insert("tokens".to_owned(), tokens.into());
                }
                row
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            Ok(print(&(serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n")))
        }
        OutputFormat::Human => {
            let mut out = String::new();
            for (server, thing, version) in rows {
                let of = LockedThing { server, thing: &thing };
                let count = lock.servers.get(server).map_or(0, |locked| locked.server.len());
                write_row(&mut out, of, version, tokens(&thing, version));
                if thing == "server" && count > 1 {
                    writeln!(out, "         one of {count}: a server may say something else of itself in each era")
                        .unwrap_or_default();
                }
                write_reviews(&mut out, version);
                if version.state == ApprovalState::Revoked {
                    continue;
                }
                if version.state == ApprovalState::Pending
                    && let Some(advice) = advice(server, &thing, version)
                {
                    writeln!(out, "         volatile: {advice}").unwrap_or_default();
                }
                write_withholding(&mut out, &settings, of, version);
            }
            Ok(print_for_people(&out))
        }
    }
}

/// Writes the first line about a version, with its tokens if they are counted.
fn write_row(
    out: &mut String,
    of: LockedThing<'_>,
    version: &LockedVersion,
    tokens: Option<usize>,
) {
    let LockedThing { server, thing } = of;
    let by = version.by.as_deref().unwrap_or_default();
    let (state, digest) = (version.state.as_str(), version.digest);
    let tokens = tokens.map(|tokens| format!("  {tokens} tokens")).unwrap_or_default();
    writeln!(out, "{state:<9}{server} {thing}  {digest}  {by}{tokens}").unwrap_or_default();
}

/// Writes why a version is withheld although it may be approved: for an evaluation, and for findings.
fn write_withholding(
    out: &mut String,
    settings: &Settings,
    of: LockedThing<'_>,
    version: &LockedVersion,
) {
    if version.state == ApprovalState::Approved
        && let Some(unmet) = settings.pins.evaluation.unmet(version)
    {
        let (code, note) = (unmet.code(), unmet.note());
        writeln!(out, "         withheld: {code}: {note}; {EVALUATE} evaluates it")
            .unwrap_or_default();
    }
    write_findings(out, &settings.policy, of, version);
}

/// Writes the findings in a version that withhold it, and those that are in it although it is shown, a line for each.
fn write_findings(out: &mut String, policy: &Policy, of: LockedThing<'_>, version: &LockedVersion) {
    let LockedThing { server, thing } = of;
    let (found, withheld) = withheld_in(policy, thing, version);
    for finding in &withheld {
        let why = why::finding(server, thing, finding);
        writeln!(out, "         withheld: {why}").unwrap_or_default();
    }
    for finding in shown_although(policy, version, &found, &withheld) {
        writeln!(out, "         {}: {finding}", finding.certainty.as_str()).unwrap_or_default();
    }
}

/// A definition in the lockfile.
#[derive(Clone, Copy)]
struct LockedThing<'a> {
    server: &'a str,
    /// Its path, such as `tools/read_file`.
    thing: &'a str,
}

/// The findings in a version that withhold nothing, are not switched off, and were not accepted: the definition is shown
/// although they are in it.
fn shown_although<'a>(
    policy: &'a Policy,
    version: &LockedVersion,
    found: &'a [Finding],
    withheld: &'a [Finding],
) -> impl Iterator<Item = &'a Finding> {
    let excused = approve::excused(version);
    found.iter().filter(move |finding| {
        policy.treatment_of(finding) == FindingTreatment::Audit
            && !excused.covers(finding)
            && !withheld.contains(finding)
    })
}

/// Writes the reason that was given for a version, its accepted findings and its evaluation, a line for each.
fn write_reviews(out: &mut String, version: &LockedVersion) {
    if let Some(reason) = version.reason.as_deref() {
        writeln!(out, "         reason: {}", in_a_line(reason)).unwrap_or_default();
    }
    for one in &version.exceptions {
        let finding = one.finding.name();
        let reason = in_a_line(&one.reason);
        writeln!(out, "         accepted: {finding}, by {} at {}: {reason}", one.by, one.at)
            .unwrap_or_default();
    }
    if let Some(RecordedEvaluation { result, digest, at }) = &version.evaluation {
        writeln!(out, "         evaluation: {}, {at}: {digest}", result.as_str())
            .unwrap_or_default();
    }
}

/// A version in the lockfile as JSON.
fn row(policy: &Policy, server: &str, thing: &str, version: &LockedVersion) -> serde_json::Value {
    let fields = Digest::of_fields(version.digest.subject(), version.definition.value());
    let fields = fields.unwrap_or_default().into_iter();
    let fields = fields.map(|(name, digest)| (name.into(), digest.to_string().into())).collect();
    let findings = |found: &[Finding]| -> Vec<_> { found.iter().map(Finding::to_string).collect() };
    let (found, withheld) = withheld_in(policy, thing, version);
    let exceptions = version.exceptions.iter().map(|one| {
        json!({ "finding": one.finding.name(), "by": one.by, "at": one.at, "reason": one.reason })
    });
    json!({
        "server": server, "thing": thing, "digest": version.digest.to_string(),
        "state": version.state.as_str(), "by": version.by, "at": version.at,
        "reason": version.reason, "findings": findings(&found), "withheld": findings(&withheld),
        "exceptions": exceptions.collect::<Vec<_>>(),
        "evaluation": version.evaluation.as_ref().map(|one| {
            json!({ "result": one.result.as_str(), "digest": one.digest, "at": one.at })
        }),
        "fields": serde_json::Value::Object(fields),
    })
}

/// The findings in a version, and those among them that withhold the definition.
fn withheld_in(
    policy: &Policy,
    thing: &str,
    version: &LockedVersion,
) -> (Vec<Finding>, Vec<Finding>) {
    let list = thing.split_once('/').map(|(list, _)| list);
    let kind = ItemKind::LISTED.into_iter().find(|kind| list == Some(kind.list()));
    let (read, found) = approve::found_in(kind, version);
    let excused = approve::excused(version);
    let withheld = approve::withheld(policy, read.as_ref(), &found, excused);
    (found, withheld)
}

fn sign(sign: &PinSignArgs) -> Result<ExitCode, ExitCode> {
    let settings = super::settings(&sign.config)?;
    let (file, keys) = (&settings.pins.file, &settings.pins.approvers.keys);
    let fail =
        |what: &str, error: &dyn std::fmt::Display| Err(complain(&format!("{what}: {error}")));
    let text = match lockfile::read(file, &Approvers::default()) {
        Ok((_, text)) => text,
        Err(error) => return fail("not signed", &ErrorChain(&error)),
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
    // Signatures of an earlier content are dropped.
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
