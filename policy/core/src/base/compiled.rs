//! Patterns and tables that are compiled from constants of the program.
//!
//! A constant that does not compile must not leave an empty detector behind. A test beside each [`Compiled`] compiles
//! it, and `tests/arch` sees that there is one. Should one not compile nevertheless, nothing counts as inspected: every
//! [`WorkBudget`] is exhausted from then on, so every message is withheld.
//!
//! [`WorkBudget`]: crate::base::work::WorkBudget

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

/// What a constant is compiled to, or why it cannot be.
pub type CompileResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A constant that is compiled when it is needed first.
#[derive(Debug)]
pub struct Compiled<T> {
    made: LazyLock<CompileResult<T>, fn() -> CompileResult<T>>,
}

/// Whether a constant that was needed did not compile.
static IS_ANY_BROKEN: AtomicBool = AtomicBool::new(false);

impl<T> Compiled<T> {
    /// A constant that `make` compiles.
    pub const fn new(make: fn() -> CompileResult<T>) -> Self {
        Self { made: LazyLock::new(make) }
    }

    /// What it was compiled to. `None` if it does not compile; then every budget is exhausted.
    pub fn get(&self) -> Option<&T> {
        self.get_or_break(&IS_ANY_BROKEN)
    }

    fn get_or_break(&self, is_broken: &AtomicBool) -> Option<&T> {
        let made = self.made.as_ref();
        if made.is_err() {
            is_broken.store(true, Ordering::Relaxed);
        }
        made.ok()
    }

    /// Why it does not compile, for the test that it does.
    #[must_use]
    pub fn error(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.made.as_ref().err().map(|error| &**error)
    }
}

/// Constants of one kind, each of which is compiled when it is needed first.
#[derive(Debug)]
pub struct CompiledEach<T, const N: usize> {
    made: [OnceLock<CompileResult<T>>; N],
    make: fn(usize) -> CompileResult<T>,
}

impl<T, const N: usize> CompiledEach<T, N> {
    /// Constants that `make` compiles by their indices.
    pub const fn new(make: fn(usize) -> CompileResult<T>) -> Self {
        Self { made: [const { OnceLock::new() }; N], make }
    }

    /// What the constant of this index was compiled to. `None` if it does not compile; then every budget is exhausted.
    pub fn get(&self, index: usize) -> Option<&T> {
        let made = self.result(index);
        if made.is_none_or(Result::is_err) {
            IS_ANY_BROKEN.store(true, Ordering::Relaxed);
        }
        made?.as_ref().ok()
    }

    /// Why the first of those that do not compile does not, for the test that all do.
    #[must_use]
    pub fn error(&self) -> Option<&(dyn Error + Send + Sync)> {
        let errors = (0..N).filter_map(|index| self.result(index)?.as_ref().err());
        errors.map(|error| &**error).next()
    }

    fn result(&self, index: usize) -> Option<&CompileResult<T>> {
        Some(self.made.get(index)?.get_or_init(|| (self.make)(index)))
    }
}

/// Whether a constant that was needed did not compile, so that nothing counts as inspected.
#[must_use]
pub fn is_any_broken() -> bool {
    IS_ANY_BROKEN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use regex::Regex;

    use super::{Compiled, CompiledEach};

    static GOOD: Compiled<Regex> = Compiled::new(|| Ok(Regex::new("a+")?));
    #[expect(clippy::invalid_regex, reason = "the one that does not compile")]
    static BAD: Compiled<Regex> = Compiled::new(|| Ok(Regex::new("a(")?));

    #[expect(clippy::invalid_regex, reason = "the second one does not compile")]
    static EACH: CompiledEach<Regex, 2> = CompiledEach::new(|index| {
        Ok(if index == 0 { Regex::new("a+")? } else { Regex::new("a(")? })
    });

    #[test]
    fn each_is_compiled_by_itself() {
        assert!(EACH.get(0).is_some());
        assert!(EACH.error().is_some());
    }

    #[test]
    fn one_that_does_not_compile_is_noticed_when_it_is_needed() {
        // Not the flag of the process, which other tests depend on.
        let is_broken = AtomicBool::new(false);
        assert!(GOOD.error().is_none() && GOOD.get_or_break(&is_broken).is_some());
        assert!(!is_broken.load(Ordering::Relaxed));
        assert!(BAD.error().is_some() && !is_broken.load(Ordering::Relaxed));
        assert!(BAD.get_or_break(&is_broken).is_none() && is_broken.load(Ordering::Relaxed));
    }
}
