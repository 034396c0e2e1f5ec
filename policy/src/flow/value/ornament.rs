//! Characters that adorn what stands beside them: marks of footnotes, abbreviations, numbers of lists.

/// The text with a space for each character that adorns what stands beside it, as marks of footnotes, abbreviations and
/// numbers of lists do (`name@host.example²`, `№12345678`); `None` if it has none. In normalisation form KC they would be
/// letters and digits of the name.
pub(super) fn without_ornaments(text: &str) -> Option<String> {
    let is_ornament = |c: char| {
        matches!(c, 'ª' | '²' | '³' | '¹' | 'º' | '\u{2070}'..='\u{209c}' | '№' | '℠'..='™' | '\u{2460}'..='\u{24ff}'
            | '\u{2776}'..='\u{2793}' | '\u{3200}'..='\u{33ff}' | '\u{1f100}'..='\u{1f1ff}')
    };
    let has_one = !text.is_ascii() && text.contains(is_ornament);
    has_one.then(|| text.replace(is_ornament, " "))
}

#[cfg(test)]
mod tests {
    use super::without_ornaments;

    #[test]
    fn ornaments_are_no_part_of_a_name() {
        assert_eq!(without_ornaments("eve@evil.example²").as_deref(), Some("eve@evil.example "));
        assert_eq!(without_ornaments("①№ 12"), Some("   12".to_owned()));
        assert_eq!(without_ornaments("ｅｖｅ and é"), None);
    }
}
