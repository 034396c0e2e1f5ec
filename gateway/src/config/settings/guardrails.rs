//! Somebody outside who is asked about arguments and results, route by route.

use std::time::Duration;

use http::Uri;

use super::compiler::Compiler;
use super::raw::{Failing, RawGuardrail};
use super::{Place, SecretRef};

/// How long an answer may take if nothing is said, and at most.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Hosts that are this machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Somebody who is asked.
#[derive(Clone, Debug)]
pub struct Guardrail {
    /// Its name on record.
    pub name: Box<str>,
    /// Where, and how it is reached.
    pub place: Place,
    /// What it is shown so that it answers.
    pub token: Option<SecretRef>,
    /// It is asked about arguments.
    pub arguments: bool,
    /// It is asked about results.
    pub results: bool,
    /// How long it may take.
    pub deadline: Duration,
    /// What becomes of a message about which it gives no answer.
    pub on_failure: Failing,
    /// Most bytes that it is sent.
    pub most: usize,
}

impl Compiler<'_> {
    pub(super) fn guardrails(&mut self, at: &str, raws: Vec<RawGuardrail>) -> Vec<Guardrail> {
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
                self.time_within(&format!("{at}/deadline"), raw.deadline.as_deref(), usual, most);
            let size = self.size(&format!("{at}/most"), raw.most.as_deref());
            if !raw.arguments && !raw.results {
                let help = "leave out `arguments` or `results`: both are asked about then";
                self.report(&at, "this guardrail is asked about nothing", help);
            }
            let Some(url) = url else { continue };
            found.push(Guardrail {
                name: raw.name.as_str().into(),
                place: Place { url, way },
                token,
                arguments: raw.arguments,
                results: raw.results,
                deadline,
                on_failure: raw.on_failure,
                most: size.unwrap_or(1024 * 1024),
            });
        }
        found
    }

    /// A URL of `https`, or one of this machine.
    pub(super) fn guarded_url(&mut self, at: &str, text: &str) -> Option<Uri> {
        let local = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http")
                && uri.host().is_some_and(|host| LOCAL.contains(&host))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        });
        local.or_else(|| self.https(at, text))
    }
}
