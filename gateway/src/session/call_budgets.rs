//! Counts what calls use up of their budgets (control C16). A budget that cannot be counted is used up.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::{ClientId, ServerName};

use crate::config::call_budget::{BudgetSubject, BudgetedCall, CallBudget};

/// Which counter of which budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CounterKey {
    budget: Box<str>,
    /// What the counter is of, in the order of `per`.
    subjects: Vec<Box<str>>,
}

/// What was used up in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    calls: u64,
    bytes: u64,
    cost: u64,
}

/// A window of a budget, and what was used up in it.
#[derive(Clone, Copy, Debug)]
struct Counter {
    ends: Instant,
    used: Usage,
}

/// The counters of all budgets.
#[derive(Debug)]
pub struct CallBudgets {
    // Locked briefly for each call that a budget counts.
    counters: Mutex<HashMap<CounterKey, Counter>>,
    limit: usize,
}

/// The counters that a call was taken from, to which its answer is added.
#[derive(Clone, Debug, Default)]
pub struct BudgetDebit(Vec<CounterKey>);

/// A budget that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// The name of the budget.
    pub budget: Box<str>,
    /// The key of the configuration that sets the bound.
    pub key: Box<str>,
    /// The time until the window ends.
    pub wait: Duration,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the budget `{}` (`{}`) is used up", self.budget, self.key)
    }
}

impl CallBudgets {
    /// Room for at most `limit` counters.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { counters: Mutex::default(), limit }
    }

    fn counters(&self) -> MutexGuard<'_, HashMap<CounterKey, Counter>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call from every budget that counts it, or from none.
    ///
    /// # Errors
    /// The first budget that is used up, or that has no room for another counter.
    pub fn take(
        &self,
        budgets: &[CallBudget],
        call: &BudgetedCall<'_>,
        now: Instant,
    ) -> Result<BudgetDebit, BudgetExceeded> {
        let mut debit = BudgetDebit::default();
        if budgets.is_empty() {
            return Ok(debit);
        }
        let mut counters = self.counters();
        let mut next = Vec::new();
        for budget in budgets.iter().filter(|budget| budget.scope.has(call)) {
            let key = key_of(budget, call);
            // The window may have become shorter since the counter began.
            let is_current =
                |counter: &&Counter| now < counter.ends && counter.ends <= now + budget.window;
            let current = counters.get(&key).filter(is_current);
            let mut counter = current
                .copied()
                .unwrap_or(Counter { ends: now + budget.window, used: Usage::default() });
            counter.used.calls = counter.used.calls.saturating_add(call.calls);
            counter.used.bytes = counter.used.bytes.saturating_add(call.bytes);
            counter.used.cost = counter.used.cost.saturating_add(call.cost);
            if let Some(bound) = exceeded(budget, counter.used) {
                return Err(BudgetExceeded {
                    budget: budget.name.clone(),
                    key: format!("{}.{bound}", budget.at).into(),
                    wait: counter.ends.saturating_duration_since(now),
                });
            }
            next.push((budget, key, counter));
        }
        let new = next.iter().filter(|(_, key, _)| !counters.contains_key(key)).count();
        if counters.len() + new > self.limit {
            counters.retain(|_, counter| now < counter.ends);
        }
        if let Some((budget, ..)) =
            next.first().filter(|_| new > 0 && counters.len() + new > self.limit)
        {
            return Err(BudgetExceeded {
                budget: budget.name.clone(),
                key: "limits.budgetCounters".into(),
                wait: Duration::from_secs(1),
            });
        }
        for (_, key, counter) in next {
            counters.insert(key.clone(), counter);
            debit.0.push(key);
        }
        Ok(debit)
    }

    /// Adds the bytes of an answer to the counters of its call.
    pub fn answered(&self, debit: &BudgetDebit, bytes: usize, now: Instant) {
        if debit.0.is_empty() || bytes == 0 {
            return;
        }
        let mut counters = self.counters();
        for key in &debit.0 {
            if let Some(counter) = counters.get_mut(key).filter(|counter| now < counter.ends) {
                counter.used.bytes = counter.used.bytes.saturating_add(bytes as u64);
            }
        }
    }

    /// Drops the counters whose window has ended.
    pub fn sweep(&self, now: Instant) {
        let mut counters = self.counters();
        counters.retain(|_, counter| now < counter.ends);
        counters.shrink_to_fit();
    }
}

/// The bound that is exceeded with this usage.
fn exceeded(budget: &CallBudget, used: Usage) -> Option<&'static str> {
    let bounds = [
        ("calls", budget.calls, used.calls),
        ("bytes", budget.bytes, used.bytes),
        ("cost", budget.cost, used.cost),
    ];
    let over =
        |(_, bound, used): &(&str, Option<u64>, u64)| bound.is_some_and(|bound| *used > bound);
    bounds.into_iter().find(over).map(|(name, ..)| name)
}

/// The counter of a budget that counts a call.
fn key_of(budget: &CallBudget, call: &BudgetedCall<'_>) -> CounterKey {
    let mut subjects: Vec<Box<str>> = Vec::with_capacity(budget.per.len() + 1);
    // No server has the empty name.
    let server = call.server.map_or("", ServerName::as_str);
    for subject in &budget.per {
        match subject {
            BudgetSubject::Principal => subjects.push(call.principal.id.as_str().into()),
            BudgetSubject::Client => {
                let client = call.principal.claims.client.as_ref().map_or("", ClientId::as_str);
                subjects.extend([call.principal.id.as_str().into(), client.into()]);
            }
            BudgetSubject::Server => subjects.push(server.into()),
            BudgetSubject::Tool => {
                // What is no tool has one counter for each server: callers choose URIs.
                let name = if call.kind == ItemKind::Tool { call.name } else { "" };
                subjects.extend([server.into(), name.into()]);
            }
        }
    }
    CounterKey { budget: budget.name.clone(), subjects }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy_core::subject::kind::ItemKind;
    use policy_core::subject::name::{PrincipalId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::{BudgetDebit, CallBudgets};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::config::call_budget::{BudgetScope, BudgetSubject, BudgetedCall, CallBudget};

    fn budget(per: &[BudgetSubject]) -> CallBudget {
        CallBudget {
            name: "b".into(),
            at: "budgets[0]".into(),
            scope: BudgetScope::default(),
            per: per.to_vec(),
            window: Duration::from_secs(60),
            calls: Some(3),
            bytes: Some(100),
            cost: Some(20),
        }
    }

    #[test]
    fn a_budget_is_used_up_and_is_whole_again_when_its_window_has_ended() {
        let (budgets, start) = (CallBudgets::new(10), SystemClock.instant());
        let all = [budget(&[BudgetSubject::Principal])];
        let server = ServerName::parse("up").unwrap();
        let take = |who: &str, bytes, cost, seconds| {
            let principal = Principal::new(PrincipalId::parse(who).unwrap(), [].into());
            let (server, kind, name) = (Some(&server), ItemKind::Tool, "read");
            let call =
                BudgetedCall { principal: &principal, server, kind, name, calls: 1, bytes, cost };
            budgets.take(&all, &call, start + Duration::from_secs(seconds))
        };
        let refused = |taken: Result<BudgetDebit, super::BudgetExceeded>| {
            let exceeded = taken.unwrap_err();
            (exceeded.key.into_string(), exceeded.wait.as_secs())
        };
        assert_eq!(refused(take("ana", 101, 1, 0)), ("budgets[0].bytes".to_owned(), 60));
        assert_eq!(refused(take("ana", 1, 21, 0)), ("budgets[0].cost".to_owned(), 60));
        let debit = take("ana", 10, 1, 0).unwrap();
        budgets.answered(&debit, 80, start);
        assert_eq!(refused(take("ana", 11, 1, 20)), ("budgets[0].bytes".to_owned(), 40));
        for seconds in [20, 30] {
            take("ana", 1, 1, seconds).unwrap();
        }
        assert_eq!(refused(take("ana", 1, 1, 59)), ("budgets[0].calls".to_owned(), 1));
        assert!(take("bob", 1, 1, 59).is_ok() && take("ana", 1, 1, 60).is_ok());
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let (budgets, start) = (CallBudgets::new(2), SystemClock.instant());
        let all = [budget(&[BudgetSubject::Tool])];
        let server = ServerName::parse("up").unwrap();
        let principal = Principal::new(PrincipalId::parse("ana").unwrap(), [].into());
        let take = |kind, name, seconds| {
            let (principal, server) = (&principal, Some(&server));
            let call = BudgetedCall { principal, server, kind, name, calls: 1, bytes: 1, cost: 1 };
            budgets.take(&all, &call, start + Duration::from_secs(seconds))
        };
        take(ItemKind::Tool, "a", 0).unwrap();
        // Every URI has the same counter.
        take(ItemKind::Resource, "file:///a", 0).unwrap();
        take(ItemKind::Resource, "file:///b", 0).unwrap();
        let full = take(ItemKind::Tool, "b", 0).unwrap_err();
        assert_eq!(&*full.key, "limits.budgetCounters");
        take(ItemKind::Tool, "a", 1).unwrap();
        take(ItemKind::Tool, "b", 60).unwrap();
        budgets.sweep(start + Duration::from_secs(600));
        assert!(budgets.counters().is_empty());
    }
}
