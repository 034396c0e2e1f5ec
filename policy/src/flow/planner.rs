//! Two planners: one that is shown nothing untrusted, and one that is shown everything and can do nothing (control C15).
//!
//! The pattern is that of the dual LLM and of CaMeL. What the second one passes to the first goes through a channel of
//! declared values ([`super::channel`]).

use json::Value;
use policy_core::subject::name::ServerName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::guard::{FlowClause, FlowPolicy, FlowViolation};
use super::label::{FlowLabels, Integrity};
use crate::definition::offer::ItemKind;

/// Which planner a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Planner {
    /// It acts, and is shown nothing that is not `trusted`.
    Trusted,
    /// It is shown everything, and can use nothing whose `sink` is not `none`.
    Untrusted,
}

impl Planner {
    /// The name in the configuration and in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}

/// The tool of the gateway with which the untrusted planner passes a value.
pub const CHANNEL_PASS: &str = "portcullis_channel_pass";
/// The tool of the gateway with which the trusted planner takes a value.
pub const CHANNEL_TAKE: &str = "portcullis_channel_take";

/// Why something is not shown to the trusted planner.
pub const WITHHELD: &str = "its source is untrusted, and this is the route of the trusted planner";

impl FlowPolicy {
    /// Why a planner may not use something that a server offers, in every mode; `None` if it may. The same decides
    /// what lists leave out.
    #[must_use]
    pub fn refuses(
        &self,
        planner: Option<Planner>,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Option<FlowViolation> {
        let planner = planner?;
        let sink = self.labels_of(server, kind, name).sink;
        let can_act = planner == Planner::Untrusted && sink != super::label::Sink::None;
        // The gateway's own tools have these names on the routes of planners.
        let is_ours = kind == ItemKind::Tool && self.reserves(name);
        let violation = FlowViolation { clause: FlowClause::Planner, at: String::new(), sink };
        (can_act || is_ours).then_some(violation)
    }

    /// Whether a tool of the gateway has this name on the routes of planners.
    #[must_use]
    pub fn reserves(&self, name: &str) -> bool {
        !self.channel().is_empty() && (name == CHANNEL_PASS || name == CHANNEL_TAKE)
    }

    /// Whether what a server says is not shown to a planner: `said` can only make the labels of what is used stricter.
    #[must_use]
    pub fn withholds(
        &self,
        planner: Option<Planner>,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
        said: Option<Value<'_>>,
    ) -> bool {
        if planner != Some(Planner::Trusted) {
            return false;
        }
        let labels = self.labels_of(server, kind, name).labels;
        // What is not shown in any case is not read.
        !is_shown(Planner::Trusted, labels)
            || said.is_some_and(|said| !is_shown(Planner::Trusted, labels.restricted_by(said)))
    }
}

/// Whether a planner is shown what has these labels.
#[must_use]
pub fn is_shown(planner: Planner, labels: FlowLabels) -> bool {
    match planner {
        Planner::Trusted => labels.integrity == Integrity::Trusted,
        Planner::Untrusted => true,
    }
}
