//! A constant that does not compile, in a process of its own: it exhausts every budget there.

use policy_core::base::compiled::Compiled;
use policy_core::base::work::WorkBudget;

static BAD: Compiled<()> = Compiled::new(|| Err("it does not compile".into()));

#[test]
fn a_detector_that_does_not_compile_exhausts_every_budget() {
    let before = WorkBudget::unlimited();
    assert!(before.spend(1) && !before.is_exhausted());
    assert!(BAD.get().is_none());
    assert!(before.is_exhausted() && !before.spend(1));
    let after = WorkBudget::unlimited();
    assert!(after.is_exhausted() && !after.spend(0));
}
