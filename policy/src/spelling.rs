//! The spellings in which servers read the name of an argument: serializers read and write names in the spelling of their
//! language, many without regard to case, and some expand a name into nested members.

use std::borrow::Cow;

use json::coding;
use policy_core::base::hidden::Hidden;
use unicode_normalization::UnicodeNormalization as _;
use unicode_security::confusable_detection::skeleton;

/// Whether a server may read the member `name` of an object as `meant`, though it is another name.
pub(crate) fn is_taken_for(name: &str, meant: &str) -> bool {
    name != meant
        && (is_variant(name, meant)
            || is_respelt(name, meant)
            || is_respelt(bare(name), meant)
            || is_expanded(name, &[meant.into()]))
}

/// Whether `name` differs from `meant` but could be read as it: in another case, with blanks, in compatibility forms,
/// with confusable letters, or with the suffix of an element (CVE-2026-27896). `__proto__` could be read as anything:
/// JavaScript reads the members of its value as those of the object around it.
pub(crate) fn is_variant(name: &str, meant: &str) -> bool {
    if name == "__proto__" {
        return meant != name;
    }
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if name == meant {
        return false;
    }
    if plain(name) && plain(meant) {
        return name.eq_ignore_ascii_case(meant) || bare(name).eq_ignore_ascii_case(meant);
    }
    let fold = |text: &str| -> String {
        let shown = text.nfkc().filter(|c| Hidden::of(*c).is_none());
        let lower = shown.flat_map(char::to_lowercase).nfkc();
        lower.filter(|c| !c.is_whitespace()).collect()
    };
    let look = |text: &str| skeleton(text).collect::<String>().to_lowercase();
    let (name, meant) = (fold(name), fold(meant));
    let meant = look(&meant);
    look(&name) == meant || look(bare(&name)) == meant
}

/// Whether `name` is `meant` in another spelling: in another case, with other separators between its words or without any,
/// with percent escapes. `file_path`, `filePath`, `file-path`, `file.path` and `file%5Fpath` are spellings of one name;
/// serializers read and write names in the spelling of their language.
pub(crate) fn is_respelt(name: &str, meant: &str) -> bool {
    // Most names differ in their first letter.
    let first =
        |text: &str| text.bytes().find(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase());
    if name == meant
        || name.is_ascii() && meant.is_ascii() && !name.contains('%') && first(name) != first(meant)
    {
        return false;
    }
    let letters = letters(name);
    !letters.is_empty() && letters == self::letters(meant)
}

/// The characters of a name in lower case, without those that separate its words. A first `_` separates none: `_id` is
/// another name than `id`.
fn letters(name: &str) -> String {
    let separates = |c: char| c.is_whitespace() || matches!(c, '_' | '-' | '.' | '/' | '\\' | ':');
    let decoded = String::from_utf8_lossy(&coding::percent(name).0).into_owned();
    let shown = decoded.nfkc().filter(|c| Hidden::of(*c).is_none());
    let lower = shown.flat_map(char::to_lowercase).nfkc().enumerate();
    let is_kept = |(at, c): &(usize, char)| *at == 0 && *c == '_' || !separates(*c) && !is_dash(*c);
    lower.filter(is_kept).map(|(_, c)| c).collect()
}

/// Strips element syntax that libraries parse (`a[]`, `a[0]`, `a.0`), and surrounding marks that they drop (`a.`,
/// `/a`).
pub(crate) fn bare(name: &str) -> &str {
    // `_id`, `$filter` and `@type` are distinct names.
    let mark = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '$' | '@');
    let whole = name.trim_matches(mark);
    let whole = whole.split_once('[').map_or(whole, |(whole, _)| whole);
    let numbered = whole.rsplit_once('.').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
    numbered.map_or(whole, |(whole, _)| whole).trim_end_matches(mark)
}

/// Whether some libraries expand `name` into nested members (`a.b`, `a[b]`, `a/b`), or truncate it at a NUL, and the
/// result lies at `path`, above it or below it.
pub(crate) fn is_expanded(name: &str, path: &[Box<str>]) -> bool {
    let parts = |c: char| matches!(c, '.' | '[' | ']' | '/' | '\0');
    let folded: Cow<'_, str> =
        if name.is_ascii() { name.into() } else { name.nfkc().collect::<String>().into() };
    if !folded.contains(parts) || path.first().is_some_and(|part| **part == *name) {
        return false;
    }
    let expanded = folded.split(parts).filter(|part| !part.is_empty());
    let is_meant = |(one, meant): (&str, &str)| {
        meant == "*" || one == meant || is_variant(one, meant) || is_respelt(one, meant)
    };
    let parts: Vec<_> = expanded.collect();
    let leads_to_prototype = parts.windows(2).any(|pair| *pair == ["constructor", "prototype"]);
    leads_to_prototype
        || !parts.is_empty()
            && parts.iter().copied().zip(path.iter().map(|part| &**part)).all(is_meant)
}

/// Whether `c` is a dash: general category `Pd` (Unicode 17), or a symbol that looks like one.
pub(crate) const fn is_dash(c: char) -> bool {
    let punctuation = matches!(
        c,
        '-' | '\u{58a}' | '\u{5be}' | '\u{1400}' | '\u{1806}' | '\u{2010}'
            ..='\u{2015}'
                | '\u{2e17}'
                | '\u{2e1a}'
                | '\u{2e3a}'
                | '\u{2e3b}'
                | '\u{2e40}'
                | '\u{2e5d}'
                | '\u{301c}'
                | '\u{3030}'
                | '\u{30a0}'
                | '\u{fe31}'
                | '\u{fe32}'
                | '\u{fe58}'
                | '\u{fe63}'
                | '\u{ff0d}'
                | '\u{10d6e}'
                | '\u{10ead}'
    );
    // A modifier letter, a bullet, and minus signs.
    punctuation || matches!(c, '\u{2d7}' | '\u{2043}' | '\u{2212}' | '\u{2796}')
}

#[cfg(test)]
mod tests {
    use super::is_taken_for;

    #[test]
    fn a_name_is_taken_for_another_in_the_spellings_that_servers_read() {
        for name in [
            "chatId",
            "ChatID",
            "CHAT_ID",
            "chat-id",
            "chat.id",
            "chat id",
            "chatid",
            "chat_id[]",
            "chat_id ",
            "chat_id.0",
            "chat_id[0]",
            "chat_id\0",
            "chat_\u{ff49}d",
            "chat_\u{456}d",
            "chat%5Fid",
            "__proto__",
        ] {
            assert!(is_taken_for(name, "chat_id"), "{name:?}");
        }
        for name in
            ["chat_id", "chat", "id", "chat_ids", "chat_id2", "the_chat_id", "other.chat_id", ""]
        {
            assert!(!is_taken_for(name, "chat_id"), "{name:?}");
        }
    }
}
