//! The Merkle tree over the records: its root hash identifies the whole log.
//!
//! Only the peaks are kept, one hash for each set bit of the size. That is enough to add leaves and to compute the
//! root, at a cost that grows with the logarithm of the size.
//!
//! RFC 6962, section 2.1 (the same in RFC 9162).

use aws_lc_rs::digest::{Context, SHA256, digest};

/// Maximum length that is hashed without a digest context, in bytes.
const PIECE: usize = 128;

/// A SHA-256 digest (FIPS 180-4).
pub type Hash = [u8; 32];

/// Prefixes of leaf and node hashes, which keep one from being mistaken for the other.
const LEAF: u8 = 0;
const NODE: u8 = 1;

/// The SHA-256 digest of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> Hash {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// Hashes the concatenation of these parts.
pub(crate) fn hash(parts: &[&[u8]]) -> Hash {
    // A digest context is allocated on the heap, and there are several hashes for each record, so short input avoids
    // it.
    let mut piece = [0; PIECE];
    let mut end = 0;
    for part in parts {
        let Some(to) = piece.get_mut(end..end + part.len()) else { return hash_apart(parts) };
        to.copy_from_slice(part);
        end += part.len();
    }
    sha256(piece.get(..end).unwrap_or_default())
}

/// Hashes parts of any length.
fn hash_apart(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// The hash of a leaf with this data.
pub(crate) fn leaf(data: &[u8]) -> Hash {
    hash(&[&[LEAF], data])
}

/// The hash of an inner node.
fn node(left: &Hash, right: &Hash) -> Hash {
    hash(&[&[NODE], left, right])
}

/// An append-only Merkle tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MerkleTree {
    size: u64,
    /// The roots of the perfect subtrees it consists of, largest first.
    peaks: Vec<Hash>,
}

impl MerkleTree {
    /// Restores a tree of `size` leaves from its peaks; `None` if the number of peaks does not match.
    #[must_use]
    pub fn resume(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (size.count_ones() as usize == peaks.len()).then_some(Self { size, peaks })
    }

    /// Returns the number of leaves.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the perfect subtrees it consists of, largest first.
    #[must_use]
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Appends a leaf with this hash.
    pub fn push(&mut self, leaf: Hash) {
        let mut head = leaf;
        let mut level = self.size;
        while level & 1 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            head = node(&left, &head);
            level >>= 1;
        }
        self.peaks.push(head);
        self.size += 1;
    }

    /// The root hash of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return hash(&[]) };
        peaks.fold(*last, |right, left| node(left, &right))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hash, MerkleTree, hash, leaf, node};
    use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

    /// The definition of the RFC, with all leaves in memory.
    fn naive(leaves: &[Vec<u8>]) -> Hash {
        match leaves {
            [] => hash(&[]),
            [data] => leaf(data),
            _ => {
                let half = leaves.len().next_power_of_two() / 2;
                let (left, right) = leaves.split_at(half);
                node(&naive(left), &naive(right))
            }
        }
    }

    #[test]
    fn the_vectors_of_certificate_transparency() {
        // RFC 9162 has no test vectors; these are from the reference implementation.
        let leaves = ["", "00", "10", "2021", "3031", "40414243"];
        let heads = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        ];
        let mut tree = MerkleTree::default();
        for (data, head) in leaves.iter().zip(heads) {
            tree.push(leaf(&json::hex::decode(data).unwrap()));
            assert_eq!(json::hex::encode(&tree.root()), head);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_the_tree_of_the_rfc(count in 0_usize..200, cut in any::<prop::sample::Index>()) {
            let leaves: Vec<_> = (0..count).map(|n| n.to_string().into_bytes()).collect();
            let mut tree = MerkleTree::default();
            for (n, data) in leaves.iter().enumerate() {
                if n == cut.index(count) {
                    tree = MerkleTree::resume(tree.size(), tree.peaks().to_vec()).unwrap();
                }
                tree.push(leaf(data));
            }
            prop_assert_eq!(tree.root(), naive(&leaves));
        }
    }

    use proptest::prelude::prop;
}
