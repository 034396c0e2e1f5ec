//! The tools that the lockfile of a configuration approves, as one caller would see them.

use std::process::ExitCode;
use std::sync::Arc;

use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::Settings;
use gateway::config::settings::cases::CallerDescription;
use gateway::control::dry_run::DryRun;
use gateway::mcp::tool_signature::ToolSignature;
use policy::definition::offer::ItemKind;
use selector::tool::ToolText;

use super::rows::ToolRow;
use crate::cli::complain;

/// The tools that are shown to `principal`, or that any caller could be shown if none is given, with the ids
/// `SERVER/NAME`.
pub(super) fn tools(
    mut settings: Settings,
    principal: Option<&str>,
) -> Result<Vec<ToolRow>, ExitCode> {
    let caller = principal.map(|id| {
        let described = CallerDescription { id: id.to_owned(), ..CallerDescription::default() };
        described.principal(&settings).map_err(|error| complain(&format!("`--principal`: {error}")))
    });
    let caller = caller.transpose()?;
    let rehearsal = DryRun::new(&mut settings);
    let rehearsal = rehearsal.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    let (policy, facts) = (rehearsal.policy(), rehearsal.policy().facts());
    let offers = rehearsal.offers().filter(|(_, offer)| offer.kind() == ItemKind::Tool);
    let shown = offers.filter(|(server, offer)| match &caller {
        Some(caller) => policy.about(&facts, caller, server, offer).shows(),
        None => policy.access().allows_anybody(server, ItemKind::Tool, offer.name().as_str()),
    });
    let row = |(server, offer): (
        &policy_core::subject::name::ServerName,
        &policy::definition::offer::CatalogItem,
    )| ToolRow {
        id: format!("{server}/{}", offer.name().as_str()),
        text: ToolText::read(server.as_str(), offer.definition()),
        signature: Arc::new(ToolSignature::read(offer.definition())),
    };
    Ok(shown.map(row).collect())
}
