//! Escapes and unescapes the reference tokens of JSON Pointers (RFC 6901).

use std::borrow::Cow;

/// Escapes the name of a member for use in a pointer (RFC 6901 section 3).
#[must_use]
pub fn escaped(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        Cow::Owned(name.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(name)
    }
}

/// The name of the member that a token of a pointer stands for (RFC 6901 section 4).
#[must_use]
pub fn unescaped(part: &str) -> Cow<'_, str> {
    if part.contains('~') {
        // `~1` first, so that `~01` becomes `~1` and not `/`.
        Cow::Owned(part.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(part)
    }
}

#[cfg(test)]
mod tests {
    use super::{escaped, unescaped};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_is_one_part_and_comes_back(name in "[~/01a]{0,12}|.{0,12}") {
            let part = escaped(&name);
            prop_assert!(!part.contains('/'));
            prop_assert_eq!(unescaped(&part), name.as_str());
        }
    }
}
