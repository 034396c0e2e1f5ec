//! Runs the checks and hands out the proofs the gateway needs to act.

use std::sync::Arc;

use crate::access::{Access, Decided};
use crate::condition::{Arguments, Subject};
use crate::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use crate::inspect::{Detector, Finding};
use crate::message::{Call, Reply, ToolCall};
use crate::name::{RuleId, ServerName};
use crate::principal::Principal;
use crate::tool::{Catalog, Tool};

/// Proof that a call was allowed. Only this module makes one, and it cannot be copied.
///
/// ```compile_fail
/// # fn forge(call: policy::message::Call, rule: policy::name::RuleId) {
/// let permit = policy::pipeline::Permit { call, rule }; // private fields
/// # }
/// ```
///
/// ```compile_fail
/// # fn replay(permit: policy::pipeline::Permit) {
/// let (first, second) = (permit.spend(), permit.spend()); // spent once
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not spent is a request that was dropped"]
pub struct Permit {
    call: Call,
    rule: RuleId,
}

impl Permit {
    /// Gives the call up for sending and keeps the right to judge its reply.
    #[must_use]
    pub fn spend(self) -> (Call, Expectation) {
        (self.call, Expectation { rule: self.rule })
    }
}

/// The right to judge one reply, left over from a spent [`Permit`].
#[derive(Debug)]
pub struct Expectation {
    rule: RuleId,
}

impl Expectation {
    /// The rule that allowed the call.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }
}

/// Proof that a reply was checked and may be shown to the client.
#[derive(Debug)]
#[must_use = "a released reply that is not sent leaves the client waiting"]
pub struct Released {
    reply: Shown,
}

/// What may be shown.
#[derive(Debug)]
pub enum Shown {
    /// These tools of a catalogue.
    Tools(Arc<View>),
    /// The answer to a call, as it came.
    Answer(Reply),
}

impl Released {
    /// The reply as it may be shown.
    #[must_use]
    pub fn into_shown(self) -> Shown {
        self.reply
    }
}

/// What one principal sees of one catalogue.
#[derive(Debug)]
pub struct View {
    principal: Principal,
    catalog: Arc<Catalog>,
    visible: Vec<usize>,
    hidden: Vec<(usize, Decision)>,
}

impl View {
    /// The tools that are shown, in the server's order.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.visible.iter().filter_map(|at| self.catalog.tools().get(*at))
    }

    /// The tools that are not, and why.
    pub fn hidden(&self) -> impl Iterator<Item = (&Tool, &Decision)> {
        self.hidden.iter().filter_map(|(at, why)| Some((self.catalog.tools().get(*at)?, why)))
    }

    /// How many tools are shown, and how many are not.
    #[must_use]
    pub const fn counts(&self) -> (usize, usize) {
        (self.visible.len(), self.hidden.len())
    }

    /// Whether it was made for `principal`.
    #[must_use]
    pub fn is_for(&self, principal: &Principal) -> bool {
        self.principal == *principal
    }
}

/// The end of an evaluation: a decision to record, and an outcome to act on.
#[derive(Debug)]
#[must_use]
pub struct Ruling<T> {
    /// For the audit log, whatever it was.
    pub decision: Decision,
    /// The proof, or why there is none.
    pub outcome: Result<T, Denial>,
}

/// Which detectors act on definitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Definitions {
    /// Characters that are not shown.
    pub hidden_characters: Mode,
    /// Text that gives orders.
    pub planted_instructions: Mode,
    /// Names outside the alphabet or given twice.
    pub tool_names: Mode,
}

impl Definitions {
    const fn mode(&self, detector: Detector) -> Mode {
        match detector {
            Detector::HiddenCharacters => self.hidden_characters,
            Detector::PlantedInstructions => self.planted_instructions,
            Detector::ToolNames => self.tool_names,
        }
    }
}

/// A compiled policy. The default one allows nothing.
#[derive(Debug, Default)]
pub struct Policy {
    access: Access,
    definitions: Definitions,
    contact: Option<Arc<str>>,
}

impl Policy {
    /// A policy of these rules and detectors; `contact` is whom a denied caller may ask.
    #[must_use]
    pub const fn new(access: Access, definitions: Definitions, contact: Option<Arc<str>>) -> Self {
        Self { access, definitions, contact }
    }

    /// May the tools of `server` be asked for on behalf of `principal`?
    pub fn admit_list(&self, principal: &Principal, server: &ServerName) -> Ruling<Permit> {
        let (shadow, findings) = (Vec::new(), Vec::new());
        let Some(rule) = self.access.could_allow(principal, server).cloned() else {
            let denial = Denial { reason: Reason::NotGranted, told: Told::Nothing };
            let effect = Effect::Deny(denial.clone());
            return Ruling {
                decision: Decision { effect, shadow, findings },
                outcome: Err(denial),
            };
        };
        let effect = Effect::Allow(rule.clone());
        let permit = Permit { call: Call::ListTools { server: server.clone() }, rule };
        Ruling { decision: Decision { effect, shadow, findings }, outcome: Ok(permit) }
    }

    /// What is said of a tool no server offers.
    #[must_use]
    pub fn unknown() -> (Decision, Denial) {
        let denial = Denial { reason: Reason::UnknownTool, told: Told::Nothing };
        let effect = Effect::Deny(denial.clone());
        (Decision { effect, shadow: Vec::new(), findings: Vec::new() }, denial)
    }

    /// May this call be sent?
    ///
    /// A tool the caller does not see is denied in the words of [`Self::about`], the function the
    /// list is made with. A tool the caller sees, called in a way no rule allows, is a denial the
    /// caller is told about.
    pub fn admit(
        &self,
        principal: &Principal,
        catalog: &Catalog,
        call: ToolCall,
    ) -> Ruling<Permit> {
        let Some(tool) = catalog.tool(&call.tool) else {
            let (decision, denial) = Self::unknown();
            return Ruling { decision, outcome: Err(denial) };
        };
        let Decided { decision: seen, for_any_arguments, .. } =
            self.standing(principal, catalog.server(), tool);
        match &seen.effect {
            Effect::Deny(denial) => {
                let denial = denial.clone();
                return Ruling { decision: seen, outcome: Err(denial) };
            }
            Effect::Allow(rule) if for_any_arguments => {
                let permit = Permit { call: Call::Tool(call), rule: rule.clone() };
                return Ruling { decision: seen, outcome: Ok(permit) };
            }
            Effect::Allow(_) => {}
        }
        let arguments = match &call.arguments {
            None => Arguments::None,
            Some(arguments) => Arguments::Given(arguments.value()),
        };
        let subject = Subject { principal, server: catalog.server(), tool, arguments };
        let Decided { decision: decided, contact, .. } = self.access.decide(subject);
        match decided.effect {
            Effect::Allow(rule) => Ruling {
                decision: Decision {
                    effect: Effect::Allow(rule.clone()),
                    shadow: decided.shadow,
                    findings: seen.findings,
                },
                outcome: Ok(Permit { call: Call::Tool(call), rule }),
            },
            Effect::Deny(Denial { reason, told }) => {
                let told = match told {
                    Told::Rule { .. } => told,
                    Told::Nothing => {
                        let contact = contact.or_else(|| self.contact.clone());
                        Told::Rule { rule: reason.rule().cloned(), contact }
                    }
                };
                let denial = Denial { reason, told };
                let effect = Effect::Deny(denial.clone());
                let (shadow, findings) = (decided.shadow, seen.findings);
                Ruling { decision: Decision { effect, shadow, findings }, outcome: Err(denial) }
            }
        }
    }

    /// May this reply be shown?
    pub fn release(&self, principal: &Principal, _due: Expectation, reply: Reply) -> Released {
        Released {
            reply: match reply {
                Reply::Tools(catalog) => Shown::Tools(Arc::new(self.view(principal, catalog))),
                Reply::Tool(_) | Reply::Error(_) => Shown::Answer(reply),
            },
        }
    }

    /// Shows a view again, if it was made for `principal`; the caller keeps views with the policy
    /// they were made under and with their catalogue.
    pub fn release_again(
        &self,
        principal: &Principal,
        due: Expectation,
        view: &Arc<View>,
    ) -> Released {
        if view.principal != *principal {
            return self.release(principal, due, Reply::Tools(Arc::clone(&view.catalog)));
        }
        Released { reply: Shown::Tools(Arc::clone(view)) }
    }

    fn view(&self, principal: &Principal, catalog: Arc<Catalog>) -> View {
        let (mut visible, mut hidden) = (Vec::new(), Vec::new());
        for (at, tool) in catalog.tools().iter().enumerate() {
            let decision = self.about(principal, catalog.server(), tool);
            match decision.effect {
                Effect::Allow(_) => visible.push(at),
                Effect::Deny(_) => hidden.push((at, decision)),
            }
        }
        View { principal: principal.clone(), catalog, visible, hidden }
    }

    /// The first finding for which a text is withheld, whoever asks.
    #[must_use]
    pub fn withholds<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        findings.iter().find(|finding| self.definitions.mode(finding.detector) == Mode::Enforce)
    }

    /// Does `tool` exist for `principal`? The one answer behind both the list and the call.
    #[must_use]
    pub fn about(&self, principal: &Principal, server: &ServerName, tool: &Tool) -> Decision {
        self.standing(principal, server, tool).decision
    }

    fn standing(&self, principal: &Principal, server: &ServerName, tool: &Tool) -> Decided {
        let subject = Subject { principal, server, tool, arguments: Arguments::Unknown };
        let mut decided = self.access.decide(subject);
        let decision = &mut decided.decision;
        if tool.findings().is_empty() {
            return decided;
        }
        let acts = |mode| {
            let of_mode = |finding: &&Finding| self.definitions.mode(finding.detector) == mode;
            tool.findings().iter().filter(of_mode).cloned().collect::<Vec<_>>()
        };
        let enforced = acts(Mode::Enforce);
        decision.findings = acts(Mode::Audit);
        if let (Effect::Allow(_), Some(finding)) = (&decision.effect, enforced.first()) {
            let reason = Reason::Definition(finding.clone());
            decision.effect = Effect::Deny(Denial { reason, told: Told::Nothing });
        }
        decision.findings.extend(enforced);
        decided
    }
}

#[cfg(test)]
mod tests;
