//! Long runs of bytes of one kind in a text.

use std::ops::Range;

/// The longest runs of bytes that `is_part` holds for, those of at least `least` bytes. Each byte is tested at most
/// once; where no run is that long, most are not tested at all.
pub(crate) fn long(
    bytes: &[u8],
    least: usize,
    is_part: impl Fn(u8) -> bool,
) -> impl Iterator<Item = Range<usize>> {
    // No run that begins before `start` is left. The bytes from there to `known` are parts.
    let (mut start, mut known) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            let probe = start + least.max(1);
            let unknown = bytes.get(known.min(probe)..probe)?;
            let Some(gap) = unknown.iter().rposition(|byte| !is_part(*byte)) else {
                let behind = bytes.get(probe..).unwrap_or_default();
                let more = behind.iter().position(|byte| !is_part(*byte)).unwrap_or(behind.len());
                let run = start..probe + more;
                (start, known) = (run.end + 1, run.end + 1);
                return Some(run);
            };
            start = known.min(probe) + gap + 1;
            known = probe;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    /// The same, with each byte tested by itself.
    fn simple(bytes: &[u8], least: usize) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut from = 0;
        for at in 0..=bytes.len() {
            if bytes.get(at).is_none_or(|byte| *byte != b'x') {
                if at - from >= least {
                    runs.push(from..at);
                }
                from = at + 1;
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn each_long_run_is_found_once(text in "[x ]{0,60}", dense in "x{0,9} ?x{0,9} x{0,9}", least in 1_usize..6) {
            for text in [text, dense] {
                let found: Vec<_> = super::long(text.as_bytes(), least, |byte| byte == b'x').collect();
                prop_assert_eq!(found, simple(text.as_bytes(), least));
            }
        }
    }
}
