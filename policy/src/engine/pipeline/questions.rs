//! Questions whether something would be permitted. The functions that mint permits decide them, and the answers are none.

use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::{Facts, Policy, Ruling};
use crate::definition::offer::{Catalog, ItemKind};
use crate::engine::message::{ItemRequest, RequestExtras, RequestOperation};
use crate::flow::guard::FlowFacts;
use crate::flow::planner::Planner;
use crate::rules::decision::{Decision, Denial};

/// What the policy would decide about a request that nobody makes: an answer, and no [`Permit`]. Nothing can be sent
/// with it.
///
/// ```
/// # use policy::engine::pipeline::{Facts, Permit, Policy};
/// # use policy::definition::offer::ItemKind;
/// # use policy_core::subject::{name::ServerName, principal::Principal};
/// # fn ask(policy: &Policy, facts: &Facts, who: &Principal, server: &ServerName) {
/// let permit: Result<Permit, _> = policy.admit_list(facts, who, server, ItemKind::Tool).outcome;
/// # }
/// ```
///
/// The answer to the question does not stand for the permit:
///
/// ```compile_fail,E0308
/// # use policy::engine::pipeline::{Facts, Permit, Policy};
/// # use policy::definition::offer::ItemKind;
/// # use policy_core::subject::{name::ServerName, principal::Principal};
/// # fn ask(policy: &Policy, facts: &Facts, who: &Principal, server: &ServerName) {
/// let permit: Permit = policy.may_list(facts, who, server, ItemKind::Tool);
/// # }
/// ```
///
/// [`Permit`]: super::Permit
#[derive(Debug)]
#[must_use = "a question whose answer is ignored need not be asked"]
pub struct Standing {
    decision: Decision,
    denial: Option<Denial>,
}

/// The route on which a request would be made, and its flow.
#[derive(Clone, Debug, Default)]
pub struct RouteFlow {
    /// The planner that the route is for, if there are two.
    pub planner: Option<Planner>,
    /// What is known of the flow; by default it was shown nothing.
    pub flow: FlowFacts,
}

impl Standing {
    fn of<T>(ruling: Ruling<T>) -> Self {
        Self { decision: ruling.decision, denial: ruling.outcome.err() }
    }

    /// Whether it would be permitted.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        self.denial.is_none()
    }

    /// Why it would be denied, if it would be.
    #[must_use]
    pub const fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    /// The decision, for the audit record, and why it would be denied.
    #[must_use]
    pub fn into_parts(self) -> (Decision, Option<Denial>) {
        (self.decision, self.denial)
    }
}

impl Policy {
    /// What [`Self::admit_list`] would decide.
    pub fn may_list(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        kind: ItemKind,
    ) -> Standing {
        Standing::of(self.decide_list(facts, principal, server, kind))
    }

    /// What [`Self::admit`] would decide.
    pub fn may_use(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: ItemRequest,
        budget: &WorkBudget,
    ) -> Standing {
        Standing::of(self.admit(facts, principal, catalog, call, budget))
    }

    /// What [`Self::admit`] would decide on a route, in a flow of which something is known.
    pub fn may_use_in(
        &self,
        route: RouteFlow,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: ItemRequest,
        budget: &WorkBudget,
    ) -> Standing {
        let RouteFlow { planner, flow } = route;
        let refused = self.flow().refuses(planner, &call.server, call.verb.kind(), &call.name);
        let flow = FlowFacts { violation: refused.or(flow.violation), ..flow };
        let extras = RequestExtras { flow, ..RequestExtras::default() };
        Standing::of(self.admit_with(facts, principal, catalog, call, &extras, budget))
    }

    /// Whether `principal` may know of the resource `uri` of `server`, as somebody who subscribes to it may.
    pub fn may_watch(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        uri: &str,
    ) -> Standing {
        let budget = WorkBudget::for_bytes(uri.len(), USUAL_MOST);
        let call = ItemRequest::bare(server, RequestOperation::Subscribe, uri);
        self.may_use(facts, principal, None, call, &budget)
    }

    /// Whether `principal` may receive notifications of the extension method `name` of `server`, as somebody who calls
    /// it may.
    pub fn may_notify(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        name: &str,
    ) -> Standing {
        let budget = WorkBudget::for_bytes(0, USUAL_MOST);
        let call = ItemRequest::bare(server, RequestOperation::Other, name);
        self.may_use(facts, principal, None, call, &budget)
    }
}
