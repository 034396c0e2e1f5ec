//! Asks the servers of a configuration for their definitions, and reports progress. Used by `pin`, `scan` and `run
//! --dry-run`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::Settings;
use gateway::control::inventory::{self, InventoryOptions, ServerInventory};
use gateway::control::run::StartError;
use policy::definition::alike;
use policy::definition::offer::CatalogItem;
use policy_core::subject::name::ServerName;

use super::super::printable::in_a_line;
use super::super::{
    LoadPurpose, complain, invalid, load_for, log_in_words, say, settings, text_of, told_to_stop,
};
use super::STOPPED;

#[derive(Debug, Args)]
pub(in crate::cli) struct SurveyArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    pub(in crate::cli) config: PathBuf,
    /// Only servers with these names.
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Time limit for each server to answer all requests.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    timeout: Duration,
}

impl SurveyArgs {
    /// Every server of a configuration, with the default time limit.
    pub(in crate::cli) fn of(config: &Path) -> Self {
        Self { config: config.to_owned(), server: Vec::new(), timeout: Duration::from_secs(30) }
    }
}

/// Parses a time between `1ms` and `1h`, such as `30s`. A number without a unit is in seconds.
pub(in crate::cli) fn patience(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    let hour = Duration::from_secs(3600);
    (!time.is_zero() && time <= hour)
        .then_some(time)
        .ok_or_else(|| "give a time between `1ms` and `1h`".to_owned())
}

/// A definition that differed when its server was asked again.
#[derive(Debug)]
pub(super) struct UnstableDefinition {
    pub(super) server: ServerName,
    /// The definition in the second answer.
    pub(super) second: CatalogItem,
    /// Where the two answers differ, as JSON Pointers.
    pub(super) places: Vec<String>,
}

/// Asks each server once.
pub(in crate::cli) fn ask(
    which: &SurveyArgs,
) -> Result<(Settings, Vec<ServerInventory>), ExitCode> {
    asked(which, SurveyRounds::Once).map(|(settings, surveys, _)| (settings, surveys))
}

/// Asks each server twice, and returns the definitions that differ as well. A program is started anew for the second
/// time, because the order of a set often differs from process to process.
pub(super) fn ask_twice(
    which: &SurveyArgs,
) -> Result<(Settings, Vec<ServerInventory>, Vec<UnstableDefinition>), ExitCode> {
    asked(which, SurveyRounds::Twice)
}

/// How often each server is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SurveyRounds {
    Once,
    Twice,
}

fn asked(
    which: &SurveyArgs,
    looks: SurveyRounds,
) -> Result<(Settings, Vec<ServerInventory>, Vec<UnstableDefinition>), ExitCode> {
    let own = settings(&which.config)?;
    let names: BTreeSet<_> = own.servers.iter().map(|s| s.name.as_str().to_owned()).collect();
    if let Some(unknown) = which.server.iter().find(|name| !names.contains(*name)) {
        return Err(complain(&format!("there is no server `{}`", unknown.escape_debug())));
    }
    let (first, second) = (settings(&which.config)?, settings(&which.config)?);
    log_in_words("warn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| complain(&format!("no threads: {error}")))?;
    let surveys = runtime.block_on(async {
        let told_to_stop = told_to_stop();
        tokio::select! {
            surveys = both(which, looks, first, second) => Some(surveys),
            () = told_to_stop => None,
        }
    });
    // Ends the processes that were started for this without waiting for blocked threads.
    runtime.shutdown_background();
    let Some(surveys) = surveys else {
        say("stopped before every server had answered; nothing was written");
        return Err(ExitCode::from(STOPPED));
    };
    let (surveys, again) = surveys.map_err(|error| unasked(which, &error))?;
    surveys.iter().for_each(warn);
    let unsteady = unsteady(&own, &surveys, &again);
    Ok((own, surveys, unsteady))
}

/// Reports why the servers could not be asked. Where secrets are missing and all servers were to be asked, all of them
/// with their places, as `portcullis validate` does.
fn unasked(which: &SurveyArgs, error: &StartError) -> ExitCode {
    if error.is_of_a_secret() && which.server.is_empty() {
        let checked = text_of(&which.config)
            .map(|text| load_for(LoadPurpose::Checking, &which.config, &text));
        if let Ok(Err(problems)) = checked {
            return invalid(&problems);
        }
    }
    complain(&ErrorChain(error).to_string())
}

/// Asks the servers, and for [`SurveyRounds::Twice`] asks again those that answered within a third of the time limit.
async fn both(
    which: &SurveyArgs,
    looks: SurveyRounds,
    first: Settings,
    second: Settings,
) -> Result<(Vec<ServerInventory>, Vec<ServerInventory>), StartError> {
    let wanted = |name: &str| which.server.is_empty() || which.server.iter().any(|w| w == name);
    let told = |server: &ServerName, what: &str| say(&format!("{server}: {what}"));
    let asking = InventoryOptions { patience: which.timeout, told: Box::new(told) };
    let surveys = Box::pin(inventory::survey(first, wanted, &asking)).await?;
    let quick: BTreeSet<_> = surveys
        .iter()
        .filter(|survey| survey.is_complete() && survey.took <= which.timeout / 3)
        .filter(|survey| survey.catalogs.iter().any(|catalog| !catalog.offers().is_empty()))
        .map(|survey| survey.server.as_str().to_owned())
        .collect();
    if looks == SurveyRounds::Once || quick.is_empty() {
        return Ok((surveys, Vec::new()));
    }
    let asking = InventoryOptions { patience: which.timeout, told: Box::new(|_, _| {}) };
    let names: Vec<_> = quick.iter().map(String::as_str).collect();
    say(&format!("{}: asked again, to see what differs at every start", names.join(", ")));
    let again = Box::pin(inventory::survey(second, |name| quick.contains(name), &asking)).await?;
    Ok((surveys, again))
}

/// Warns about what could not be read of a server.
fn warn(survey: &ServerInventory) {
    let server = &survey.server;
    if let Some(why) = &survey.failed {
        let why = with_output(why);
        say(&format!("warning: the server `{server}` could not be asked: {why}"));
    }
    if let Some(mend) = &survey.mend {
        say(&format!("  what to do about `{server}`: {mend}"));
    }
    for (kind, why) in &survey.unread {
        let (list, why) = (kind.list(), with_output(why));
        say(&format!("warning: the {list} of the server `{server}` could not be read: {why}"));
    }
}

/// A reason in one line, and the lines of a program's output after it, each in a line of its own.
fn with_output(why: &str) -> String {
    let lines = why.split(inventory::OUTPUT_LINE).map(in_a_line);
    lines.collect::<Vec<_>>().join(inventory::OUTPUT_LINE)
}

/// Finds definitions that differ between the two answers.
fn unsteady(
    settings: &Settings,
    surveys: &[ServerInventory],
    again: &[ServerInventory],
) -> Vec<UnstableDefinition> {
    let pins = settings.pins.approving(Arc::default());
    let mut found = Vec::new();
    for survey in surveys {
        let server = &survey.server;
        let Some(other) = again.iter().find(|other| other.server == *server) else { continue };
        let offers = survey.catalogs.iter().flat_map(|catalog| catalog.offers());
        for offer in offers {
            // A server may offer a definition in another form to clients that support server requests.
            let of_kind = other.catalogs.iter().filter(|catalog| catalog.kind() == offer.kind());
            let forms: Vec<_> = of_kind.filter_map(|c| c.offer(offer.name().as_str())).collect();
            if forms.iter().any(|second| pins.are_alike(server.as_str(), offer, second)) {
                continue;
            }
            let Some(second) = forms.first().copied() else { continue };
            let places = alike::differing(offer.definition(), second.definition());
            let (server, second) = (server.clone(), second.clone());
            found.push(UnstableDefinition { server, second, places });
        }
    }
    found
}
