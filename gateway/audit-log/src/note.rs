//! Checkpoints: signed tree heads in the format that witnesses of transparency logs read.
//!
//! C2SP signed-note and tlog-checkpoint, with Ed25519 (RFC 8032).

use std::fmt::Write as _;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::hex;

use crate::tree::{Hash, MerkleTree, hash};

/// The signature type of Ed25519 in signed notes.
const ALGORITHM: u8 = 1;
/// The prefix of each signature line.
const DASH: &str = "\u{2014} ";
/// Length of an Ed25519 signature in bytes. Other signature types are longer.
const SIGNATURE: usize = 64;

/// The reason why a key or a note cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The private key is not an Ed25519 key in PKCS#8.
    #[error("this is no Ed25519 key in PKCS#8")]
    Key,
    /// The public key is not of the form `NAME+HASH+KEY`.
    #[error("this is no verifier key `NAME+HASH+KEY`")]
    Verifier,
    /// The note is not a checkpoint.
    #[error("this is no checkpoint")]
    Form,
    /// The note has no complete signature, as a crash may leave it.
    #[error("this checkpoint is not finished")]
    Unfinished,
    /// No known key has signed the note.
    #[error("it is signed by none of the keys")]
    Stranger,
    /// The signature under the name of a known key is invalid.
    #[error("the signature is wrong")]
    Signature,
}

/// A private key that signs checkpoints.
#[derive(Debug)]
pub struct NoteSigner {
    key: Ed25519KeyPair,
    public: NoteVerifier,
}

/// A public key that verifies signed notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteVerifier {
    name: Box<str>,
    id: [u8; 4],
    key: Vec<u8>,
}

/// A tree head: the root hash of a log at one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The origin of the log: the name of the signer, and the chain id.
    pub origin: Box<str>,
    /// Number of records it covers.
    pub size: u64,
    /// The root hash over these records.
    pub root: Hash,
}

impl NoteVerifier {
    fn new(name: &str, key: &[u8]) -> Self {
        let [a, b, c, d, ..] = hash(&[name.as_bytes(), b"\n", &[ALGORITHM], key]);
        Self { name: name.into(), id: [a, b, c, d], key: key.to_vec() }
    }

    /// Parses a verifier key `NAME+HASH+KEY`.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        // The key may contain a plus sign, the name may not.
        let mut parts = text.trim().splitn(3, '+');
        let parts = (parts.next(), parts.next(), parts.next());
        let (Some(name), Some(id), Some(key)) = parts else { return Err(NoteError::Verifier) };
        let key = STANDARD.decode(key).map_err(|_broken| NoteError::Verifier)?;
        let Some((&ALGORITHM, key)) = key.split_first() else { return Err(NoteError::Verifier) };
        let verifier = Self::new(name, key);
        match hex::encode(&verifier.id) == id && key.len() == 32 && !name.is_empty() {
            true => Ok(verifier),
            false => Err(NoteError::Verifier),
        }
    }

    /// The verifier key in the form `NAME+HASH+KEY`.
    #[must_use]
    pub fn text(&self) -> String {
        let key = STANDARD.encode([&[ALGORITHM], &*self.key].concat());
        format!("{}+{}+{key}", self.name, hex::encode(&self.id))
    }
}

impl NoteSigner {
    /// Generates a new key.
    ///
    /// # Errors
    /// If no random bytes are available.
    pub fn generate(name: &str) -> Result<Self, NoteError> {
        Ok(Self::of(Ed25519KeyPair::generate().map_err(|_failed| NoteError::Key)?, name))
    }

    /// Reads a private key in PKCS#8 (DER).
    ///
    /// # Errors
    /// If it is anything else.
    pub fn read(der: &[u8], name: &str) -> Result<Self, NoteError> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
        Ok(Self::of(key.map_err(|_refused| NoteError::Key)?, name))
    }

    fn of(key: Ed25519KeyPair, name: &str) -> Self {
        let public = NoteVerifier::new(name, key.public_key().as_ref());
        Self { key, public }
    }

    /// Returns the private key in PEM.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn pem(&self) -> Result<String, NoteError> {
        let der = self.key.to_pkcs8v1().map_err(|_failed| NoteError::Key)?;
        let mut text = String::from("-----BEGIN PRIVATE KEY-----\n");
        for line in STANDARD.encode(der.as_ref()).as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END PRIVATE KEY-----\n");
        Ok(text)
    }

    /// The public key that verifies its notes.
    #[must_use]
    pub fn public(&self) -> &NoteVerifier {
        &self.public
    }

    /// Signs the head of `tree` over the records of `chain`, as a note.
    #[must_use]
    pub fn note(&self, chain: &str, tree: &MerkleTree) -> String {
        let root = STANDARD.encode(tree.root());
        let mut note = format!("{}/{chain}\n{}\n{root}\n", self.public.name, tree.size());
        let signature = self.key.sign(note.as_bytes());
        let signature = STANDARD.encode([&self.public.id, signature.as_ref()].concat());
        writeln!(note, "\n{DASH}{} {signature}", self.public.name).unwrap_or_default();
        note
    }
}

/// A complete signature line of a note, by any signer.
#[derive(Debug)]
struct NoteSignature<'a> {
    name: &'a str,
    id: [u8; 4],
    signature: Vec<u8>,
}

impl<'a> NoteSignature<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (name, signature) = line.strip_prefix(DASH)?.rsplit_once(' ')?;
        let bytes = STANDARD.decode(signature).ok()?;
        let (id, signature) = bytes.split_first_chunk::<4>()?;
        let is_complete = signature.len() >= SIGNATURE;
        is_complete.then(|| Self { name, id: *id, signature: signature.to_vec() })
    }

    fn is_of(&self, verifier: &NoteVerifier) -> bool {
        *self.name == *verifier.name && self.id == verifier.id
    }
}

/// Splits a note into its text, including the last line end, and its complete signatures.
fn parts(note: &str) -> Result<(String, Vec<NoteSignature<'_>>), NoteError> {
    let (text, signatures) = note.split_once("\n\n").ok_or(NoteError::Unfinished)?;
    let signed: Vec<_> = signatures.lines().filter_map(NoteSignature::read).collect();
    if signed.is_empty() {
        return Err(NoteError::Unfinished);
    }
    Ok((format!("{text}\n"), signed))
}

impl Checkpoint {
    /// Verifies a note with the keys in `known`, and returns the checkpoint and the key that signed it. Signatures of
    /// other keys are ignored, as C2SP signed-note requires.
    ///
    /// # Errors
    /// If it is not a checkpoint, or no known key has a valid signature on it.
    pub fn open<'a>(
        note: &str,
        known: impl IntoIterator<Item = &'a NoteVerifier>,
    ) -> Result<(Self, &'a NoteVerifier), NoteError> {
        let (text, signatures) = parts(note)?;
        for verifier in known {
            let own = signatures.iter().find(|signature| signature.is_of(verifier));
            let Some(own) = own else { continue };
            let key = UnparsedPublicKey::new(&ED25519, &verifier.key);
            let checked = key.verify(text.as_bytes(), &own.signature);
            checked.map_err(|_wrong| NoteError::Signature)?;
            return Ok((Self::read(&text).ok_or(NoteError::Form)?, verifier));
        }
        Err(NoteError::Stranger)
    }

    /// Parses a note without verifying its signatures.
    ///
    /// # Errors
    /// If it is not a checkpoint.
    pub fn unsigned(note: &str) -> Result<Self, NoteError> {
        Self::read(&parts(note)?.0).ok_or(NoteError::Form)
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let root = STANDARD.decode(root).ok()?.try_into().ok()?;
        Some(Self { origin: origin.into(), size: size.parse().ok()?, root })
    }

    /// Splits a file of consecutive notes. What is left of an unfinished note is returned as one of them. A note is a
    /// text, an empty line, and signatures; an empty line or the next text ends it.
    #[must_use]
    pub fn split(text: &str) -> Vec<String> {
        let mut notes = Vec::new();
        let (mut note, mut last) = (String::new(), "");
        for line in text.lines() {
            let signs = line.starts_with(DASH);
            // No signature follows other text after the signatures; nothing but signatures follows the empty line.
            let ends = !signs && (last.starts_with(DASH) || last.is_empty());
            if ends && !note.is_empty() {
                notes.push(std::mem::take(&mut note));
            }
            last = line;
            if note.is_empty() && line.is_empty() {
                continue;
            }
            note.push_str(line);
            note.push('\n');
        }
        if !note.is_empty() {
            notes.push(note);
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, DASH, NoteError, NoteSigner, NoteVerifier, STANDARD};
    use crate::tree::MerkleTree;
    use base64::Engine as _;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn a_checkpoint_is_good_for_who_knows_the_key_and_for_nobody_else() {
        let signer = NoteSigner::generate("gw.example/one").unwrap();
        let mut tree = MerkleTree::default();
        tree.push([1; 32]);
        let note = signer.note("0011223344556677", &tree);
        let public = NoteVerifier::parse(&signer.public().text()).unwrap();
        let (read, by) = Checkpoint::open(&note, [&public]).unwrap();
        assert_eq!((&*read.origin, read.size), ("gw.example/one/0011223344556677", 1));
        assert_eq!((read.root, by), (tree.root(), &public));
        let stranger = NoteSigner::generate("gw.example/one").unwrap();
        assert_eq!(Checkpoint::open(&note, [stranger.public()]), Err(NoteError::Stranger));
        let forged = note.replacen("\n1\n", "\n2\n", 1);
        assert_eq!(Checkpoint::open(&forged, [&public]), Err(NoteError::Signature));
        // Wherever a crash cuts one note, that note is invalid, and the others are still found.
        let cosigned = note.clone() + &format!("{DASH}witness {}\n", STANDARD.encode([7; 76]));
        for end in 1..note.len() {
            let part = String::from_utf8_lossy(note.as_bytes().split_at(end).0);
            let open = |note: &String| Checkpoint::open(note, [&public]).map(|(read, _)| read.size);
            let file = format!("\n\n{cosigned}\n{part}\n\n{note}\n{part}");
            let read: Vec<_> = Checkpoint::split(&file).iter().map(open).collect();
            let whole = read.iter().filter(|size| **size == Ok(1)).count();
            let cut = read.iter().filter(|size| **size == Err(NoteError::Unfinished)).count();
            assert!(whole >= 2 && whole + cut == read.len(), "{end}: {read:?}");
        }
        // Text that is put before a signed note does not count as signed.
        assert_eq!(Checkpoint::open(&format!("a\n{note}"), [&public]), Err(NoteError::Signature));
        let again = PrivatePkcs8KeyDer::from_pem_slice(signer.pem().unwrap().as_bytes()).unwrap();
        let again = NoteSigner::read(again.secret_pkcs8_der(), "gw.example/one").unwrap();
        assert_eq!(again.public(), signer.public());
    }

    #[test]
    fn the_key_of_the_specification_is_read() {
        // The example of C2SP signed-note.
        let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        assert_eq!(NoteVerifier::parse(text).unwrap().text(), text);
        let note = "If you think cryptography is the answer to your problem,\nthen you don't know \
                    what your problem is.\n\n\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        // It is not a checkpoint, but its signature is valid.
        assert_eq!(
            Checkpoint::open(note, [&NoteVerifier::parse(text).unwrap()]),
            Err(NoteError::Form)
        );
        assert!(NoteVerifier::parse(&text.replacen("c7", "c8", 1)).is_err());
    }
}
