//! Compiles the `guardrails` of a route: external services that judge arguments and results.

use std::time::Duration;

use http::Uri;

use super::compiler::SettingsCompiler;
use super::raw::{GuardrailFailure, RawGuardrail};
use super::{SecretRef, ServiceEndpoint};
use crate::net::egress::is_this_machine;

/// The default and the maximum time limit of a guardrail.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// The default number of questions to a guardrail at once.
const CONCURRENT: usize = 64;

/// An external service that judges arguments and results.
#[derive(Clone, Debug)]
pub struct GuardrailSettings {
    /// The name of the guardrail in records.
    pub name: Box<str>,
    /// The URL, and how the gateway connects to it.
    pub place: ServiceEndpoint,
    /// The bearer token, if it requires one.
    pub token: Option<SecretRef>,
    /// Whether arguments of tools are sent to it.
    pub arguments: bool,
    /// Whether results of calls are sent to it.
    pub results: bool,
    /// How long it may take.
    pub deadline: Duration,
    /// What happens to a message if it gives no valid answer in time.
    pub on_failure: GuardrailFailure,
    /// Maximum size of a message that is sent to it, in bytes; longer ones are denied.
    pub most: usize,
    /// Maximum number of questions at once.
    pub concurrent: usize,
    /// The part of them that one caller may have.
    pub concurrent_per_caller: usize,
}

impl SettingsCompiler<'_> {
    pub(super) fn guardrails(
        &mut self,
        at: &str,
        raws: Vec<RawGuardrail>,
    ) -> Vec<GuardrailSettings> {
        let mut seen = std::collections::BTreeSet::new();
        let mut found = Vec::new();
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("{at}/guardrails/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            let url = self.guarded_url(&format!("{at}/url"), &raw.url);
            let way = self.way(&format!("{at}/connection"), &raw.connection);
            let token = raw.token.and_then(|token| self.secret(&format!("{at}/token"), token));
            let (usual, most) = DEADLINE;
            let deadline =
                self.time_within(&format!("{at}/timeout"), raw.timeout.as_deref(), usual, most);
            let size = self.size(&format!("{at}/maxSize"), raw.max_size.as_deref());
            if !raw.arguments && !raw.results {
                let help = "leave out `arguments` or `results`: both are asked about then";
                self.report(&at, "this guardrail is asked about nothing", help);
            }
            let concurrent = raw.max_concurrent.unwrap_or(CONCURRENT);
            let each = raw.max_concurrent_per_caller.unwrap_or(concurrent / 4).max(1);
            if each > concurrent {
                let message = format!("one caller cannot have {each} of {concurrent} questions");
                let place = format!("{at}/maxConcurrentPerCaller");
                self.report(&place, message, "give at most `maxConcurrent`");
            }
            let Some(url) = url else { continue };
            found.push(GuardrailSettings {
                name: raw.name.as_str().into(),
                place: ServiceEndpoint { url, way },
                token,
                arguments: raw.arguments,
                results: raw.results,
                deadline,
                on_failure: raw.on_failure,
                most: size.unwrap_or(1024 * 1024),
                concurrent,
                concurrent_per_caller: each,
            });
        }
        found
    }

    /// Parses an `https` URL, or an `http` URL of this machine.
    pub(super) fn guarded_url(&mut self, at: &str, text: &str) -> Option<Uri> {
        let local = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http")
                && is_this_machine(uri)
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        });
        local.or_else(|| self.https(at, text))
    }
}
