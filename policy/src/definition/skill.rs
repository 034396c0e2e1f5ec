//! Manifests of skills: the files of a skill and their digests, which what a server sends for a file is held to.
//!
//! A skill is server-provided text that a model follows, so its files are approved with its definition: the definition
//! lists every file with its digest, and nothing that it does not list belongs to the skill (threats T4 and T5 of SEP-2640).
//!
//! SPEC SEP-2640, «Skill Entries» and «Integrity and Verification»

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use json::{JsonKind, Value, coding, hex};
use policy_core::subject::skill;
use policy_core::subject::uri::{self, ResourceUri, UriError};

/// Most files of a skill (SEP-2640, «Limits»).
pub const FILES: usize = 512;
/// Most bytes of all files of a skill together (SEP-2640, «Limits»).
pub const BYTES: u64 = 16 << 20;

/// Why a skill cannot be used: its definition does not say which bytes belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The URI of the skill, or of a file, has no canonical form.
    #[error("{0}")]
    Uri(UriError),
    /// The URI of the skill is not that of a `SKILL.md`.
    #[error("the URI of the skill is not `skill://PATH/SKILL.md`")]
    NoSkillUri,
    /// `frontmatter` has no name or no description.
    #[error("`frontmatter` has no `name` or no `description`")]
    Frontmatter,
    /// The name in `frontmatter` is not that of the directory.
    #[error("the name in `frontmatter` is not the last part of the path of the skill")]
    Name,
    /// The skill has no digests.
    #[error("the skill has no digests of its files, so nobody can approve what it says")]
    NoDigests,
    /// The list of files is not a list of objects with `uri`, `digest` and `size`.
    #[error(
        "`resources` has an entry without `uri` or `digest` (`sha256:` and 64 hexadecimal digits in lower case), or \
             with a `size` that is no number of bytes"
    )]
    Entry,
    /// A file is not in the directory of the skill.
    #[error("a file of the skill is not in the directory of its `SKILL.md`")]
    Outside,
    /// A file is listed twice.
    #[error("a file of the skill is listed twice")]
    Twice,
    /// `SKILL.md` itself is not among the files.
    #[error("the `SKILL.md` of the skill is not among its files")]
    NoMain,
    /// There are too many files.
    #[error("the skill has more than {FILES} files")]
    Files,
    /// The files are too large together.
    #[error("the files of the skill have more than {BYTES} bytes together")]
    Bytes,
}

/// A file of a skill, as its manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    listed: Box<str>,
    digest: [u8; 32],
    size: Option<u64>,
}

impl SkillFile {
    /// The URI in the spelling of the server.
    #[must_use]
    pub fn listed(&self) -> &str {
        &self.listed
    }

    /// Whether these are the bytes that the manifest lists.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        let has_size = self.size.is_none_or(|size| u64::try_from(bytes.len()) == Ok(size));
        has_size && digest(&SHA256, bytes).as_ref() == self.digest
    }

    /// Whether a result of `resources/read` has this file as its only content, with the bytes that the manifest lists.
    /// Everything that a reader could take for other bytes counts as another content.
    #[must_use]
    pub fn is_content_of(&self, result: Value<'_>) -> bool {
        let Some(contents) = result.get("contents").filter(|list| list.kind() == JsonKind::Array)
        else {
            return false;
        };
        let mut items = contents.items();
        let (Some(content), None) = (items.next(), items.next()) else { return false };
        let same = |uri: &str| {
            let (given, own) = (ResourceUri::listed(uri), ResourceUri::listed(&self.listed));
            given.is_ok() && given == own
        };
        let uri = content.get("uri").and_then(Value::as_str);
        if !uri.is_some_and(|uri| same(&uri)) {
            return false;
        }
        match (content.get("text"), content.get("blob")) {
            (Some(text), None) => text.as_str().is_some_and(|text| self.is(text.as_bytes())),
            (None, Some(blob)) => {
                blob.as_str().and_then(|blob| decoded(&blob)).is_some_and(|bytes| self.is(&bytes))
            }
            (Some(_), Some(_)) | (None, None) => false,
        }
    }
}

/// The bytes of a `blob`, which is base64 as RFC 4648, section 4, writes it: what other spellings decode to depends on the
/// reader.
fn decoded(blob: &str) -> Option<Vec<u8>> {
    let digits = blob.trim_end_matches('=');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_plain =
        blob.len().is_multiple_of(4) && blob.len() - digits.len() <= 2 && digits.bytes().all(plain);
    if blob.is_empty() {
        return Some(Vec::new());
    }
    is_plain.then(|| coding::base64(blob)).flatten()
}

/// The files of a skill, by canonical URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillManifest {
    files: BTreeMap<Box<str>, SkillFile>,
}

impl SkillManifest {
    /// Reads the manifest in the definition of a skill.
    ///
    /// # Errors
    /// If the definition does not say completely and unmistakably which bytes belong to the skill.
    pub fn read(definition: Value<'_>) -> Result<Self, ManifestError> {
        let uri = definition.get("uri").and_then(Value::as_str).ok_or(ManifestError::NoSkillUri)?;
        let uri = ResourceUri::parse(&uri).map_err(ManifestError::Uri)?;
        let directory = skill::directory(uri.as_str()).ok_or(ManifestError::NoSkillUri)?;
        let front = definition.get("frontmatter");
        let text = |member: &str| front.and_then(|front| front.get(member)).and_then(Value::as_str);
        let (Some(name), Some(_)) = (text("name"), text("description")) else {
            return Err(ManifestError::Frontmatter);
        };
        if skill::name(uri.as_str()) != Some(&*name) {
            return Err(ManifestError::Name);
        }
        // A skill whose files are `dynamic` has no digests either.
        let list = definition.get("resources").filter(|list| list.kind() == JsonKind::Array);
        let files = files(list.ok_or(ManifestError::NoDigests)?, directory)?;
        if !files.contains_key(uri.as_str()) {
            return Err(ManifestError::NoMain);
        }
        Ok(Self { files })
    }

    /// The file with this canonical URI.
    #[must_use]
    pub fn file(&self, uri: &str) -> Option<&SkillFile> {
        self.files.get(uri)
    }

    /// The canonical URIs of the files.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(|uri| &**uri)
    }
}

/// The files of a list, all of them in `directory`.
fn files(list: Value<'_>, directory: &str) -> Result<BTreeMap<Box<str>, SkillFile>, ManifestError> {
    let (mut files, mut bytes) = (BTreeMap::new(), 0_u64);
    let mut forms = std::collections::BTreeSet::new();
    for entry in list.items() {
        if files.len() >= FILES {
            return Err(ManifestError::Files);
        }
        let listed = entry.get("uri").and_then(Value::as_str).ok_or(ManifestError::Entry)?;
        let uri = ResourceUri::parse(&listed).map_err(ManifestError::Uri)?;
        let own = uri.as_str().strip_prefix(directory).ok_or(ManifestError::Outside)?;
        // A query, or a slash at the end, is no part of the name of a file.
        if own.is_empty() || own.ends_with('/') || own.contains('?') {
            return Err(ManifestError::Outside);
        }
        let digest = entry.get("digest").and_then(Value::as_str);
        let digest = digest.and_then(|text| sha256(&text)).ok_or(ManifestError::Entry)?;
        let size = match entry.get("size") {
            None => None,
            Some(size) => {
                let size = size.as_i64().and_then(|size| u64::try_from(size).ok());
                Some(size.ok_or(ManifestError::Entry)?)
            }
        };
        bytes = bytes.saturating_add(size.unwrap_or_default());
        if bytes > BYTES {
            return Err(ManifestError::Bytes);
        }
        // A server may return the same file for every related form of its URI.
        if !forms.insert(Box::<str>::from(uri::reduced(uri.as_str()))) {
            return Err(ManifestError::Twice);
        }
        files.insert(uri.as_str().into(), SkillFile { listed: (*listed).into(), digest, size });
    }
    Ok(files)
}

/// The bytes of a digest `sha256:HEX`, as the specification writes it.
fn sha256(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix("sha256:")?;
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 64 || !digits.bytes().all(lower) {
        return None;
    }
    hex::decode(digits)?.try_into().ok()
}

/// Whether a value has the content of a file of a skill: an object with a URI of skills and a text or bytes. Data of a tool
/// (`structuredContent`) has none.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
#[must_use]
pub fn has_file(value: Value<'_>) -> bool {
    let is_file = || {
        let has = |known: &str| value.members().any(|(name, _)| name.eq_ignore_ascii_case(known));
        let is_of_skills = |(name, uri): (std::borrow::Cow<'_, str>, Value<'_>)| {
            name.eq_ignore_ascii_case("uri")
                && uri.as_str().is_some_and(|uri| skill::is_skill_uri(&uri))
        };
        value.members().any(is_of_skills) && (has("text") || has("blob"))
    };
    is_file()
        || value.items().any(has_file)
        || value.members().any(|(name, member)| name != "structuredContent" && has_file(member))
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds, hex};
    use serde_json::{Value, json};

    use super::{BYTES, FILES, ManifestError, SkillManifest};

    fn digest(text: &str) -> String {
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        format!("sha256:{}", hex::encode(sum.as_ref()))
    }

    fn read(definition: &Value) -> Result<SkillManifest, ManifestError> {
        let document = Document::parse(definition.to_string().into(), &JsonBounds::MESSAGE);
        SkillManifest::read(document.unwrap().root())
    }

    fn file(uri: &str) -> Value {
        json!({ "uri": uri, "digest": digest("x"), "size": 1 })
    }

    fn skill(files: impl Into<Value>) -> Value {
        let files = files.into();
        json!({
            "uri": "skill://acme/refunds/SKILL.md",
            "frontmatter": { "name": "refunds", "description": "Refunds" },
            "resources": files,
        })
    }

    fn with(uri: &str) -> Value {
        skill(json!([file("skill://acme/refunds/SKILL.md"), file(uri)]))
    }

    #[test]
    fn a_complete_manifest_is_read() {
        let manifest = read(&with("skill://acme/refunds/references/a b.md")).unwrap();
        let found = manifest.file("skill://acme/refunds/references/a%20b.md").unwrap();
        assert_eq!(found.listed(), "skill://acme/refunds/references/a b.md");
        assert!(found.is(b"x") && !found.is(b"y") && !found.is(b"xx"));
        assert!(manifest.file("skill://acme/refunds/other.md").is_none());
    }

    #[test]
    fn a_file_outside_of_the_skill_withholds_it() {
        for (uri, error) in [
            ("file:///etc/passwd", Some(ManifestError::Outside)),
            ("file:/etc/passwd", Some(ManifestError::Outside)),
            ("https://acme.example/refunds/a.md", Some(ManifestError::Outside)),
            ("skill://acme/other/a.md", Some(ManifestError::Outside)),
            ("skill://acme/refunds", Some(ManifestError::Outside)),
            ("skill://acme/refunds/", Some(ManifestError::Outside)),
            ("skill://acme/refunds/a.md?x", Some(ManifestError::Outside)),
            ("skill://acme/refunds/../other/a.md", None),
            ("skill://acme/refunds/%2e%2e/a.md", None),
            ("skill://acme/refunds/..%2Fa.md", None),
            ("skill://acme/refunds/a\\b.md", None),
            ("skill://acme/refunds//etc/passwd", None),
            ("/etc/passwd", None),
            ("../a.md", None),
        ] {
            let found = read(&with(uri)).unwrap_err();
            assert!(
                error.map_or(matches!(found, ManifestError::Uri(_)), |e| e == found),
                "{uri}: {found}"
            );
        }
    }

    #[test]
    fn what_has_no_digests_is_withheld() {
        for files in [json!("dynamic"), json!(null), json!({}), json!("static")] {
            assert_eq!(read(&skill(files)).unwrap_err(), ManifestError::NoDigests);
        }
        let mut none = skill(json!([]));
        none.as_object_mut().unwrap().remove("resources");
        assert_eq!(read(&none).unwrap_err(), ManifestError::NoDigests);
        let main = "skill://acme/refunds/SKILL.md";
        let upper = digest("x").to_uppercase();
        for entry in [
            json!({ "uri": main }),
            json!({ "uri": main, "digest": "" }),
            json!({ "uri": main, "digest": "sha256:00" }),
            json!({ "uri": main, "digest": upper }),
            json!({ "uri": main, "digest": digest("x").replace("sha256", "md5") }),
            json!({ "uri": main, "digest": digest("x"), "size": -1 }),
            json!({ "uri": main, "digest": digest("x"), "size": "1" }),
            json!({ "digest": digest("x") }),
            json!("SKILL.md"),
        ] {
            assert_eq!(read(&skill(json!([entry]))).unwrap_err(), ManifestError::Entry, "{entry}");
        }
    }

    #[test]
    fn a_manifest_has_its_main_file_once_and_its_own_name() {
        let main = "skill://acme/refunds/SKILL.md";
        assert_eq!(read(&skill(json!([]))).unwrap_err(), ManifestError::NoMain);
        assert_eq!(read(&with(main)).unwrap_err(), ManifestError::Twice);
        let blank = read(&skill(json!([
            file(main),
            file("skill://acme/refunds/a;v=1"),
            file("skill://acme/refunds/a")
        ])));
        assert_eq!(blank.unwrap_err(), ManifestError::Twice);
        let mut other = skill(json!([file(main)]));
        other["frontmatter"]["name"] = json!("payments");
        assert_eq!(read(&other).unwrap_err(), ManifestError::Name);
        other["frontmatter"] = json!({ "name": "refunds" });
        assert_eq!(read(&other).unwrap_err(), ManifestError::Frontmatter);
        for uri in
            ["skill://refunds", "github://acme/refunds/SKILL.md", "skill://acme/refunds/README.md"]
        {
            let mut elsewhere = skill(json!([file(main)]));
            elsewhere["uri"] = json!(uri);
            assert_eq!(read(&elsewhere).unwrap_err(), ManifestError::NoSkillUri, "{uri}");
        }
    }

    #[test]
    fn files_and_bytes_are_bounded() {
        let main = file("skill://acme/refunds/SKILL.md");
        let many = |count: usize| {
            let more = (1..count).map(|n| file(&format!("skill://acme/refunds/{n}.md")));
            skill(std::iter::once(main.clone()).chain(more).collect::<Vec<_>>())
        };
        assert!(read(&many(FILES)).is_ok());
        assert_eq!(read(&many(FILES + 1)).unwrap_err(), ManifestError::Files);
        let mut large = file("skill://acme/refunds/large.md");
        large["size"] = json!(BYTES);
        assert_eq!(read(&skill(json!([main, large]))).unwrap_err(), ManifestError::Bytes);
    }

    #[test]
    fn only_the_listed_bytes_under_the_listed_uri_are_the_file() {
        let manifest = read(&with("skill://acme/refunds/a.md")).unwrap();
        let file = manifest.file("skill://acme/refunds/a.md").unwrap();
        let is = |contents: Value| {
            let text = json!({ "contents": contents }).to_string();
            let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
            file.is_content_of(document.root())
        };
        let uri = "skill://acme/refunds/a.md";
        assert!(is(json!([{ "uri": uri, "mimeType": "text/markdown", "text": "x" }])));
        assert!(is(json!([{ "uri": uri, "blob": "eA==" }])));
        for contents in [
            json!([{ "uri": uri, "text": "y" }]),
            json!([{ "uri": uri, "text": "x\n" }]),
            json!([{ "uri": uri, "blob": "eQ==" }]),
            json!([{ "uri": uri, "blob": "eA" }]),
            json!([{ "uri": uri, "blob": "eA==\n" }]),
            json!([{ "uri": uri, "text": "x", "blob": "eA==" }]),
            json!([{ "uri": uri, "text": ["x"] }]),
            json!([{ "uri": "skill://acme/refunds/SKILL.md", "text": "x" }]),
            json!([{ "text": "x" }]),
            json!([{ "uri": uri, "text": "x" }, { "uri": uri, "text": "x" }]),
            json!({ "uri": uri, "text": "x" }),
            json!([]),
        ] {
            assert!(!is(contents.clone()), "{contents}");
        }
    }
}
