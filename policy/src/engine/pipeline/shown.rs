//! Words of a server that were inspected, and are shown to a client or stored for it.

use std::sync::Arc;

use bytes::Bytes;
use json::{Document, Fragment, JsonBounds, Value};

/// Proof that words of a server were inspected, and may be shown to the caller for whom they were. Only
/// [`Policy::release`] and its kin mint one, and it cannot be copied.
///
/// ```
/// # fn read(shown: policy::engine::pipeline::Shown) {
/// let said = shown.value();
/// # }
/// ```
///
/// ```compile_fail,E0423
/// # fn forge(said: json::Fragment) {
/// let shown = policy::engine::pipeline::Shown(said); // a private field
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn copy(shown: policy::engine::pipeline::Shown) {
/// let again = shown.clone();
/// # }
/// ```
///
/// [`Policy::release`]: super::Policy::release
#[derive(Debug)]
#[must_use = "what is released and not shown leaves the client waiting"]
pub struct Shown(Fragment);

impl Shown {
    /// Marks `said` as inspected.
    pub(super) const fn inspected(said: Fragment) -> Self {
        Self(said)
    }

    /// What may be shown.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.0.value()
    }

    /// What may be shown, as it is kept.
    #[must_use]
    pub const fn fragment(&self) -> &Fragment {
        &self.0
    }

    /// A copy to be stored, which does not keep the message alive that this is a part of.
    pub fn stored(&self) -> StoredWords {
        StoredWords(Bytes::copy_from_slice(self.0.value().raw().as_bytes()))
    }
}

/// The text of a [`Shown`], stored to be shown to the same caller later.
///
/// ```
/// # fn store(shown: policy::engine::pipeline::Shown) {
/// let again = shown.stored().read();
/// # }
/// ```
///
/// ```compile_fail,E0423
/// # fn forge(said: bytes::Bytes) {
/// let stored = policy::engine::pipeline::StoredWords(said); // a private field
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StoredWords(Bytes);

impl StoredWords {
    /// Its length in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.0.len()
    }

    /// Parses the stored words; `None` if they are not JSON.
    #[must_use]
    pub fn read(&self) -> Option<Shown> {
        // INVARIANT: it was read within these bounds before.
        let document = Document::parse(self.0.clone(), &JsonBounds::ANSWER).ok()?;
        Some(Shown(Fragment::whole(Arc::new(document))))
    }
}
