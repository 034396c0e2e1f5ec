//! The tools that the lockfile of a configuration approves, as one caller would see them.

use std::process::ExitCode;
use std::sync::Arc;

use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::Settings;
use gateway::config::settings::cases::{CallerDescription, KnownCallers};
use gateway::control::dry_run::DryRun;
use gateway::mcp::tool_signature::ToolSignature;
use policy::definition::drift::visible;
use policy::definition::offer::ItemKind;
use selector::tool::ToolText;

use super::rows::ToolRow;
use crate::cli::{complain, say};

/// The tools that are shown to `principal`, or that any caller could be shown if none is given, with the ids
/// `SERVER/NAME`.
pub(super) fn tools(
    mut settings: Settings,
    principal: Option<&str>,
) -> Result<Vec<ToolRow>, ExitCode> {
    let known = KnownCallers::of(&settings.identity);
    let caller = principal.map(|id| {
        let described = CallerDescription { id: id.to_owned(), ..CallerDescription::default() };
        if !described.is_known_or_described(&known) {
            say(&format!(
                "note: the configuration names no principal `{}`: these are the tools of one without groups, roles and scopes",
                visible(id)
            ));
        }
        let principal = described.principal_among(&known);
        principal.map_err(|error| complain(&format!("`--principal`: {error}")))
    });
    let caller = caller.transpose()?;
    let rehearsal = DryRun::new(&mut settings);
    let rehearsal = rehearsal.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    let (policy, facts) = (rehearsal.policy(), rehearsal.policy().facts());
    let offers = rehearsal.offers().filter(|(_, offer)| offer.kind() == ItemKind::Tool);
    let mut withheld = 0_usize;
    let shown = offers.filter(|(server, offer)| {
        let is_allowed = match &caller {
            Some(caller) => return policy.about(&facts, caller, server, offer).shows(),
            None => policy.access().allows_anybody(server, ItemKind::Tool, offer.name().as_str()),
        };
        let is_withheld = is_allowed && policy.withholds_from_all(&facts, server, offer);
        withheld += usize::from(is_withheld);
        is_allowed && !is_withheld
    });
    let row = |(server, offer): (
        &policy_core::subject::name::ServerName,
        &policy::definition::offer::CatalogItem,
    )| ToolRow {
        id: format!("{server}/{}", offer.name().as_str()),
        text: ToolText::read(server.as_str(), offer.definition()),
        signature: Arc::new(ToolSignature::read(offer.definition())),
    };
    let rows = shown.map(row).collect();
    if withheld > 0 {
        say(&format!(
            "note: {withheld} tools of the lockfile are withheld from everybody and left out: they are not approved, not \
             evaluated, revoked, or have a finding"
        ));
    }
    Ok(rows)
}
