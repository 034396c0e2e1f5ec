//! Detects files that the configuration uses for two purposes of which one writes: each would destroy the data of
//! the other.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::compiler::SettingsCompiler;
use super::{
    AuditSettings, ListenerSettings, OpsListener, PinSettings, SecretRef, SinkTarget, lockfile,
};
use crate::base::file;

/// How the gateway uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAccess {
    Read,
    Written,
}

/// A file and its purpose.
struct FilePurpose {
    /// The JSON Pointer of the key that names the file.
    at: String,
    what: String,
    path: PathBuf,
    used: FileAccess,
}

/// The identity of a file, to recognize it under several paths.
#[derive(PartialEq, Eq)]
enum FileIdentity {
    /// An existing file, by device and inode.
    There(u64, u64),
    /// A missing file, by its path in the canonical directory.
    Missing(PathBuf),
}

/// The parts of a configuration that name files.
pub(super) struct ConfiguredFiles<'a> {
    pub(super) configuration: &'a Path,
    pub(super) pins: &'a PinSettings,
    pub(super) revocations: Option<&'a Path>,
    pub(super) approvals: Option<&'a Path>,
    pub(super) audit: &'a AuditSettings,
    pub(super) ops: Option<&'a OpsListener>,
    pub(super) listeners: &'a [ListenerSettings],
}

impl SettingsCompiler<'_> {
    /// Reports each file that has two purposes of which one writes.
    pub(super) fn clashes(&mut self, files: &ConfiguredFiles<'_>) {
        let mut seen: Vec<(FilePurpose, FileIdentity)> = Vec::new();
        for named in files.named() {
            let Some(place) = place(&named.path) else { continue };
            let clash = seen.iter().find(|(other, at)| {
                *at == place
                    && (named.used == FileAccess::Written || other.used == FileAccess::Written)
            });
            if let Some((other, _)) = clash {
                let file = named.path.display();
                let message = format!("`{file}` would be {} and {}", other.what, named.what);
                self.report(&named.at, message, "give each a file of its own");
            }
            seen.push((named, place));
        }
    }
}

impl ConfiguredFiles<'_> {
    fn named(&self) -> Vec<FilePurpose> {
        let mut all = Vec::new();
        let mut name = |at: &str, what: &str, path: &Path, used: FileAccess| {
            all.push(FilePurpose {
                at: at.to_owned(),
                what: what.to_owned(),
                path: path.to_owned(),
                used,
            });
        };
        name("", "the configuration", self.configuration, FileAccess::Read);
        for (n, listener) in self.listeners.iter().enumerate() {
            if let Some(tls) = &listener.tls {
                let at = format!("/listeners/{n}/tls");
                name(&at, "the certificate of a listener", &tls.own.certificate, FileAccess::Read);
                name(&at, "the key of a listener", &tls.own.key, FileAccess::Read);
            }
        }
        let secrets = [
            ("/ops/token", self.ops.and_then(|ops| ops.token.as_ref())),
            ("/audit/digestKey", self.audit.digest_key.as_ref()),
            ("/audit/checkpoints/key", self.audit.checkpoints.key.as_ref()),
        ];
        for (at, secret) in secrets {
            if let Some(SecretRef::File(path)) = secret {
                name(at, "a secret", path, FileAccess::Read);
            }
        }
        let lockfile = &self.pins.file;
        name("/pins/file", "the lockfile of the pins", lockfile, FileAccess::Written);
        let signatures = lockfile::signatures(lockfile);
        name("/pins/file", "the signatures of the lockfile", &signatures, FileAccess::Written);
        if let Some(file) = self.approvals {
            name("/approvals/file", "the file of approvals", file, FileAccess::Written);
        }
        if let Some(list) = self.revocations {
            let at = "/revocations/file";
            name(at, "the list of revocations", list, FileAccess::Written);
            name(
                at,
                "the lock file of `revocations.file`",
                &file::lock_of(list),
                FileAccess::Written,
            );
        }
        for (n, sink) in self.audit.sinks.iter().enumerate() {
            if let SinkTarget::File(path, _) = &sink.to {
                let at = format!("/audit/sinks/{n}/file");
                name(&at, &format!("the audit log `{}`", sink.name), path, FileAccess::Written);
            }
        }
        if let Some(path) = &self.audit.checkpoints.file {
            name("/audit/checkpoints/file", "the file of checkpoints", path, FileAccess::Written);
        }
        all
    }
}

/// The identity of the file at `path`; `None` for a pipe or device, which several writers can share.
fn place(path: &Path) -> Option<FileIdentity> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() => Some(FileIdentity::There(data.dev(), data.ino())),
        Ok(_) => None,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok();
            let whole = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            Some(FileIdentity::Missing(whole.or_else(|| std::path::absolute(path).ok())?))
        }
    }
}
