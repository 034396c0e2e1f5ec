//! Asks the user at the terminal about each definition: shows what changed, what was found, and what follows from it.

use std::io::{self, BufRead as _, Write as _};

use detection::inspect::{AcceptedDetectors, Detector};
use gateway::config::settings::lockfile::{self, LONGEST_REASON};
use policy::definition::drift;
use policy::definition::lock::ApprovalState;
use policy::definition::pin::DigestSubject;
use policy::engine::pipeline::Policy;

use super::super::super::printable::{in_a_line, printable};
use super::super::super::say;
use super::{ApprovalCandidate, Consent, excused, stays};
use crate::cli::pin::changes_in_words;

/// How often an unrecognized answer is asked for again.
const TRIES: usize = 3;
/// Explanation of the answers, shown after an unrecognized one such as `?`.
const ANSWERS: &str = "  y  it is approved as it is shown: callers see it and call it, as far as the rules allow\n  \
                       n  it stays as it is, and callers are not shown it; what was approved before stays\n  \
                       a  yes to this one, and to all after it in which nothing was found\n  \
                       q  nothing more is asked; what was said yes to so far is approved";
/// Most lines of a new definition that are shown.
const LINES: usize = 200;

/// The user's answer to a question about one definition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApprovalAnswer {
    Yes,
    No,
    /// Approve this definition, and all after it without findings.
    All,
    /// Ask nothing more, and approve nothing more.
    Quit,
}

/// Asks about each candidate, and returns the approvals. `reason` is the one from the command line, which applies to
/// all.
pub(super) fn consents(
    policy: &Policy,
    candidates: &[ApprovalCandidate<'_>],
    reason: Option<&str>,
) -> Vec<Consent> {
    let mut consents = Vec::new();
    let mut all = false;
    let is_pending =
        |candidate: &ApprovalCandidate<'_>| candidate.version.state != ApprovalState::Approved;
    let count = candidates.iter().filter(|candidate| is_pending(candidate)).count();
    let mut place = 0;
    if count > 1 {
        say("`q` ends the questions and keeps the answers so far; Ctrl-C keeps none of them");
    }
    for candidate in candidates {
        let pending = is_pending(candidate);
        place += usize::from(pending);
        let mut known = excused(candidate.version);
        let withheld = candidate.withheld(policy, known);
        if !pending && withheld.is_empty() {
            continue;
        }
        if pending && all && candidate.findings.is_empty() {
            consents.push(candidate.consent(reason, Vec::new()));
            continue;
        }
        show(policy, candidate, known);
        let answer = match pending {
            true => asked(&format!("{place} of {count}: approve it?")),
            false => ApprovalAnswer::Yes,
        };
        match answer {
            ApprovalAnswer::Quit => break,
            ApprovalAnswer::No => continue,
            ApprovalAnswer::All => all = true,
            ApprovalAnswer::Yes => {}
        }
        let mut accept: Vec<Detector> = Vec::new();
        for finding in withheld.iter().filter(|finding| finding.unacceptable().is_none()) {
            let name = finding.detector.name();
            let question = format!("is `{name}` a false alarm, to be shown and called?");
            if !accept.contains(&finding.detector) && confirmed(&question) {
                accept.push(finding.detector);
                known.note(finding.detector);
            }
        }
        let own = reason.map(str::to_owned).or_else(|| {
            why(if accept.is_empty() { ReasonNeed::Optional } else { ReasonNeed::Required })
        });
        if own.is_none() && !accept.is_empty() {
            say("nothing is accepted without a reason");
            accept.clear();
        }
        if pending || !accept.is_empty() {
            consents.push(candidate.consent(own.as_deref(), accept));
        }
    }
    consents
}

/// Shows one definition: its changes since the last approval, or all of it, and its findings.
fn show(policy: &Policy, candidate: &ApprovalCandidate<'_>, excused: AcceptedDetectors) {
    let subject = match candidate.offer {
        Some((kind, _)) => DigestSubject::Offer(kind),
        None => DigestSubject::Server,
    };
    let definition = candidate.version.definition.value();
    let others: Vec<_> = candidate
        .versions
        .iter()
        .filter(|version| version.digest != candidate.version.digest)
        .cloned()
        .collect();
    let former = others.iter().rfind(|version| version.state == ApprovalState::Approved);
    let shown = candidate.shown();
    if candidate.version.state == ApprovalState::Revoked {
        let by = candidate.version.by.as_deref().unwrap_or("somebody who is not named");
        let why = in_a_line(candidate.version.reason.as_deref().unwrap_or("no reason is given"));
        say(&format!("\n{shown}: revoked by {by}: {why}"));
    }
    match (candidate.version.state, former) {
        (ApprovalState::Approved, _) => say(&format!("\n{shown}: approved, and not shown")),
        (_, Some(former)) => {
            let by = former.by.as_deref().unwrap_or("nobody who is named");
            let at = former.at.as_deref().unwrap_or("an unknown time");
            say(&format!("\n{shown}: changed since {by} approved it at {at}"));
            say(changes_in_words(&drift::nearest(&others, subject, definition).changes).trim_end());
        }
        (_, None) => {
            say(&format!("\n{shown}: new"));
            let text = lockfile::in_lines(definition);
            text.lines().take(LINES).for_each(|line| say(&format!("  {line}")));
            let more = text.lines().count().saturating_sub(LINES);
            if more > 0 {
                say(&format!("  and {more} more lines, in the lockfile"));
            }
        }
    }
    if candidate.findings.is_empty() {
        say(
            "  nothing was found in it; what its arguments could reach is said by `portcullis scan`",
        );
    }
    for finding in &candidate.findings {
        say(&format!("  found: {finding}"));
    }
    for finding in candidate.withheld(policy, excused) {
        say(&format!("  {}", stays(&finding)));
    }
}

/// Asks about one definition. The end of input counts as [`ApprovalAnswer::Quit`].
fn asked(question: &str) -> ApprovalAnswer {
    for _ in 0..TRIES {
        let prompt =
            format!("{question} [y]es, [n]o, [a]ll the rest in which nothing was found, [q]uit: ");
        match line(&prompt).as_deref() {
            Some("y" | "yes") => return ApprovalAnswer::Yes,
            Some("n" | "no") => return ApprovalAnswer::No,
            Some("a" | "all") => return ApprovalAnswer::All,
            Some("q" | "quit") | None => return ApprovalAnswer::Quit,
            Some(_) => say(ANSWERS),
        }
    }
    ApprovalAnswer::Quit
}

/// Asks a yes-or-no question; any answer but yes is no.
fn confirmed(question: &str) -> bool {
    matches!(line(&format!("{question} [y/N]: ")).as_deref(), Some("y" | "yes"))
}

/// Whether an approval needs a reason.
#[derive(Clone, Copy)]
enum ReasonNeed {
    /// A finding is accepted.
    Required,
    Optional,
}

/// Asks for a reason; `None` if none is given.
fn why(need: ReasonNeed) -> Option<String> {
    let prompt = match need {
        ReasonNeed::Required => "reason (needed): ",
        ReasonNeed::Optional => "reason (may be empty): ",
    };
    for _ in 0..TRIES {
        let said = line(prompt)?;
        if said.is_empty() && matches!(need, ReasonNeed::Optional) {
            return None;
        }
        // Typed ahead, or taken for the question whether to approve.
        if ["y", "n", "a", "q", "?"].contains(&said.as_str()) {
            say(&format!(
                "`{said}` is no reason: say why in words, for those who read the lockfile"
            ));
        } else if said.len() > LONGEST_REASON {
            say(&format!("that is longer than {LONGEST_REASON} bytes"));
        } else if !said.is_empty() {
            return Some(said);
        }
    }
    None
}

/// Reads a trimmed line from the terminal; `None` at the end of input.
fn line(prompt: &str) -> Option<String> {
    let mut stderr = io::stderr();
    stderr.write_all(printable(prompt).as_bytes()).ok()?;
    stderr.flush().ok()?;
    let mut text = String::new();
    let read = io::stdin().lock().read_line(&mut text).ok()?;
    (read > 0).then(|| text.trim().to_owned())
}
