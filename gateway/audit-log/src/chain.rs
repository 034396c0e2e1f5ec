//! The hash chain: each record names the hash of the one before it, so that none can be changed, removed, inserted or
//! moved without breaking every later one (control C23).
//!
//! ```text
//! content = SHA-256( JCS( the record without seq, prev and hash ) )            RFC 8785
//! hash    = SHA-256( 0x00 ‖ prev ‖ seq, 8 bytes ‖ content )                         RFC 6962
//! ```
//!
//! The hash of a record is also its leaf hash in the Merkle tree, so nothing is hashed twice.
//!
//! `docs/audit.md` describes the format for authors of other verifiers.

use json::hex;
use json::{Document, write_canonical, write_canonical_string};

use crate::tree::{Hash, MerkleTree, hash, leaf, sha256};

/// The current version of the format.
pub const SCHEMA: &str = "portcullis.audit/v3";
/// The common prefix of all versions.
const FORMATS: &str = "portcullis.audit/v";
/// The `prev` hash of the first record of a chain.
pub const GENESIS: Hash = [0; 32];
/// Length of `,"prev":"`, 64 digits and `"`.
const PREV: usize = 9 + 64 + 1;
/// Length of `,"hash":"`, 64 digits and `"}`.
const HASH: usize = 9 + 64 + 2;

/// The sequence number and hashes of a record in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// Number of records before it.
    pub seq: u64,
    /// The hash of the previous record.
    pub prev: Hash,
    /// The hash of this record.
    pub hash: Hash,
}

/// The head of a chain, to which the next record is appended.
#[derive(Clone, Debug)]
pub struct HashChain {
    /// The chain id: 16 hexadecimal digits, in every record.
    pub id: Box<str>,
    /// The hash of the last record.
    pub last: Hash,
    /// The Merkle tree of the records; its size is the sequence number of the next one.
    pub tree: MerkleTree,
}

/// The digest of a record's content, which must be in canonical form.
#[must_use]
pub fn content(canonical: &[u8]) -> Hash {
    sha256(canonical)
}

/// The digest of a record's content in the form that [`json::write_ascii`] writes.
#[must_use]
pub fn content_of(line: &[u8]) -> Hash {
    // Text without `\u` escapes is canonical already. Others are rare.
    if memchr::memchr(b'\\', line).is_none() || memchr::memmem::find(line, b"\\u").is_none() {
        return content(line);
    }
    canonical(line).map_or_else(|| content(line), |canonical| content(&canonical))
}

/// The canonical form (RFC 8785) of a record without `seq`, `prev` and `hash`.
fn canonical(line: &[u8]) -> Option<Vec<u8>> {
    let document = read(line)?;
    let mut members: Vec<_> = document.root().members().collect();
    members.retain(|(name, _)| !matches!(&**name, "seq" | "prev" | "hash"));
    members.sort_by(|(one, _), (other, _)| json::by_units(one, other));
    let mut out = vec![b'{'];
    for (n, (name, value)) in members.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_canonical_string(&mut out, &name);
        out.push(b':');
        write_canonical(&mut out, value).ok()?;
    }
    out.push(b'}');
    Some(out)
}

/// Parses a record strictly; `None` if it is not valid JSON.
#[must_use]
pub fn read(line: &[u8]) -> Option<Document> {
    let bytes = bytes::Bytes::copy_from_slice(line);
    Document::parse(bytes, &json::JsonBounds::MESSAGE).ok()
}

/// The format version of a record, if it is not the current one.
#[must_use]
pub fn other_format(line: &[u8]) -> Option<u8> {
    let document = read(line)?;
    let version = document.root().get("schema")?.as_str()?.strip_prefix(FORMATS)?.parse().ok()?;
    (format!("{FORMATS}{version}") != SCHEMA).then_some(version)
}

/// The chain id and the tree of a record that carries the peaks of the tree so far.
#[must_use]
pub fn peaks(line: &[u8]) -> Option<(Box<str>, MerkleTree)> {
    let document = read(line)?;
    let root = document.root();
    let size = root.get("size")?.raw().parse().ok()?;
    let mut peaks: Vec<Hash> = Vec::new();
    for peak in root.get("peaks")?.items() {
        peaks.push(hex::decode(&peak.as_str()?)?.try_into().ok()?);
    }
    let id = Box::from(&*root.get("chain")?.as_str()?);
    Some((id, MerkleTree::resume(size, peaks)?))
}

/// The event type of a record in canonical form. A quote inside a string is escaped, so no name chosen by a peer can
/// imitate it.
#[must_use]
pub fn event_of(line: &[u8]) -> Option<&str> {
    const KEY: &[u8] = br#","event":""#;
    let rest = line.get(memchr::memmem::find(line, KEY)? + KEY.len()..)?;
    std::str::from_utf8(rest.get(..memchr::memchr(b'"', rest)?)?).ok()
}

impl ChainLink {
    /// Computes the place of a record with the digest `content` that follows the hash `prev`.
    #[must_use]
    pub fn after(prev: Hash, seq: u64, content: &Hash) -> Self {
        let mut data = [0; 72];
        let (before, rest) = data.split_at_mut(32);
        let (number, said) = rest.split_at_mut(8);
        before.copy_from_slice(&prev);
        number.copy_from_slice(&seq.to_be_bytes());
        said.copy_from_slice(content);
        let hash = leaf(&data);
        Self { seq, prev, hash }
    }

    /// Appends the place to `line`, a JSON object without it, and ends the line.
    pub fn seal(&self, line: &mut Vec<u8>) {
        line.pop();
        line.extend_from_slice(br#","seq":"#);
        line.extend_from_slice(itoa::Buffer::new().format(self.seq).as_bytes());
        for (name, value) in [(br#","prev":""#, &self.prev), (br#","hash":""#, &self.hash)] {
            line.extend_from_slice(name);
            hex::write(line, value);
            line.push(b'"');
        }
        line.extend_from_slice(b"}\n");
    }

    /// Whether `content` is the digest of the record at this place.
    #[must_use]
    pub fn fits(&self, content: &Hash) -> bool {
        Self::after(self.prev, self.seq, content) == *self
    }

    /// Reads the place of the record in `line`, and whether its hash matches its content, that is, whether it is
    /// unchanged. `None` if there is no record.
    #[must_use]
    pub fn of(line: &[u8]) -> Option<(Self, bool)> {
        if let Some((place, said)) = Self::as_written(line)
            && place.fits(&hash(&[said, b"}"]))
        {
            return Some((place, true));
        }
        // The record may have been reformatted, with other spaces or in another order: that is no change of content.
        let document = read(line)?;
        let text = |name: &str| document.root().get(name)?.as_str().map(String::from);
        let digest = |name: &str| hex::decode(&text(name)?)?.try_into().ok();
        let seq = document.root().get("seq")?.raw().parse().ok()?;
        let place = Self { seq, prev: digest("prev")?, hash: digest("hash")? };
        let fits = canonical(line).is_some_and(|canonical| place.fits(&content(&canonical)));
        Some((place, fits))
    }

    /// Reads the place at the end of a line as [`Self::seal`] writes it, and returns it with the content before it.
    fn as_written(line: &[u8]) -> Option<(Self, &[u8])> {
        let digest = |part: &[u8]| {
            let mut hash = [0; 32];
            let (pairs, _) = part.as_chunks::<2>();
            for (to, [high, low]) in hash.iter_mut().zip(pairs) {
                let digit = |byte: u8| match byte {
                    b'0'..=b'9' => Some(byte - b'0'),
                    b'a'..=b'f' => Some(byte - b'a' + 10),
                    _ => None,
                };
                *to = digit(*high)? << 4 | digit(*low)?;
            }
            Some(hash)
        };
        let (rest, last) = line.split_at_checked(line.len().checked_sub(HASH)?)?;
        let own = last.strip_prefix(br#","hash":""#)?.strip_suffix(br#""}"#)?;
        let (rest, before) = rest.split_at_checked(rest.len().checked_sub(PREV)?)?;
        let prev = before.strip_prefix(br#","prev":""#)?.strip_suffix(b"\"")?;
        let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (rest, seq) = rest.split_at_checked(rest.len().checked_sub(digits)?)?;
        let seq = std::str::from_utf8(seq).ok()?.parse().ok()?;
        let said = rest.strip_suffix(br#","seq":"#)?;
        Some((Self { seq, prev: digest(prev)?, hash: digest(own)? }, said))
    }
}

impl HashChain {
    /// Makes an empty chain with this id.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self { id: id.into(), last: GENESIS, tree: MerkleTree::default() }
    }

    /// The place of the next record, with the digest `content`.
    #[must_use]
    pub fn next(&self, content: &Hash) -> ChainLink {
        ChainLink::after(self.last, self.tree.size(), content)
    }

    /// Appends the record at `place`.
    pub fn push(&mut self, place: &ChainLink) {
        self.last = place.hash;
        self.tree.push(place.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::{ChainLink, HashChain, content_of};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn sealed(chain: &HashChain, name: &str) -> Vec<u8> {
        let mut line = br#"{"chain":"0011223344556677","tool":"#.to_vec();
        json::write_ascii(&mut line, name);
        line.push(b'}');
        chain.next(&content_of(&line)).seal(&mut line);
        line.pop();
        line
    }

    proptest! {
        #[test]
        fn a_record_is_where_it_belongs_however_it_is_written(name in "\\PC{0,12}[\\x00-\\x7f]{0,4}") {
            let chain = HashChain::new("0011223344556677");
            let line = sealed(&chain, &name);
            let (place, fits) = ChainLink::of(&line).unwrap();
            prop_assert!(fits);
            prop_assert_eq!((place.seq, place.prev), (0, chain.last));
            #[expect(clippy::disallowed_methods, reason = "our own output")]
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let anew = serde_json::to_vec_pretty(&value).unwrap();
            prop_assert_eq!(ChainLink::of(&anew), Some((place, true)));
        }

        #[test]
        fn a_byte_that_is_changed_is_seen(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut line = sealed(&HashChain::new("0011223344556677"), "a name é");
            let before = ChainLink::of(&line).unwrap();
            let at = at.index(line.len());
            let old = std::mem::replace(&mut line[at], byte);
            // Another spelling is not a change: hashes and escapes with capital digits.
            let same = old.eq_ignore_ascii_case(&byte);
            if !same {
                prop_assert!(ChainLink::of(&line).is_none_or(|(place, fits)| !fits || place != before.0));
            }
        }
    }

    use proptest::prelude::prop;
}
