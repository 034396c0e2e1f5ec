//! Detects files that the configuration uses for two purposes of which one writes: each would destroy the data of
//! the other.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::compiler::Compiler;
use super::{Audit, Listener, Ops, Pinning, SecretRef, SinkTarget, lockfile};
use crate::base::file;

/// How the gateway uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Written,
}

/// A file and its purpose.
struct Named {
    /// The JSON Pointer of the key that names the file.
    at: String,
    what: String,
    path: PathBuf,
    used: Use,
}

/// The identity of a file, to recognize it under several paths.
#[derive(PartialEq, Eq)]
enum Place {
    /// An existing file, by device and inode.
    There(u64, u64),
    /// A missing file, by its path in the canonical directory.
    Missing(PathBuf),
}

/// The parts of a configuration that name files.
pub(super) struct Files<'a> {
    pub(super) configuration: &'a Path,
    pub(super) pins: &'a Pinning,
    pub(super) revocations: Option<&'a Path>,
    pub(super) audit: &'a Audit,
    pub(super) ops: Option<&'a Ops>,
    pub(super) listeners: &'a [Listener],
}

impl Compiler<'_> {
    /// Reports each file that has two purposes of which one writes.
    pub(super) fn clashes(&mut self, files: &Files<'_>) {
        let mut seen: Vec<(Named, Place)> = Vec::new();
        for named in files.named() {
            let Some(place) = place(&named.path) else { continue };
            let clash = seen.iter().find(|(other, at)| {
                *at == place && (named.used == Use::Written || other.used == Use::Written)
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

impl Files<'_> {
    fn named(&self) -> Vec<Named> {
        let mut all = Vec::new();
        let mut name = |at: &str, what: &str, path: &Path, used: Use| {
            all.push(Named {
                at: at.to_owned(),
                what: what.to_owned(),
                path: path.to_owned(),
                used,
            });
        };
        name("", "the configuration", self.configuration, Use::Read);
        for (n, listener) in self.listeners.iter().enumerate() {
            if let Some(tls) = &listener.tls {
                let at = format!("/listeners/{n}/tls");
                name(&at, "the certificate of a listener", &tls.own.certificate, Use::Read);
                name(&at, "the key of a listener", &tls.own.key, Use::Read);
            }
        }
        let secrets = [
            ("/ops/token", self.ops.and_then(|ops| ops.token.as_ref())),
            ("/audit/digestKey", self.audit.digest_key.as_ref()),
            ("/audit/checkpoints/key", self.audit.checkpoints.key.as_ref()),
        ];
        for (at, secret) in secrets {
            if let Some(SecretRef::File(path)) = secret {
                name(at, "a secret", path, Use::Read);
            }
        }
        let lockfile = &self.pins.file;
        name("/pins/file", "the lockfile of the pins", lockfile, Use::Written);
        let signatures = lockfile::signatures(lockfile);
        name("/pins/file", "the signatures of the lockfile", &signatures, Use::Written);
        if let Some(list) = self.revocations {
            let at = "/revocations/file";
            name(at, "the list of revocations", list, Use::Written);
            name(
                at,
                "what is locked to change the revocations",
                &file::lock_of(list),
                Use::Written,
            );
        }
        for (n, sink) in self.audit.sinks.iter().enumerate() {
            if let SinkTarget::File(path, _) = &sink.to {
                let at = format!("/audit/sinks/{n}/file");
                name(&at, &format!("the audit log `{}`", sink.name), path, Use::Written);
            }
        }
        if let Some(path) = &self.audit.checkpoints.file {
            name("/audit/checkpoints/file", "the file of checkpoints", path, Use::Written);
        }
        all
    }
}

/// The identity of the file at `path`; `None` for a pipe or device, which several writers can share.
fn place(path: &Path) -> Option<Place> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() => Some(Place::There(data.dev(), data.ino())),
        Ok(_) => None,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok();
            let whole = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            Some(Place::Missing(whole.or_else(|| std::path::absolute(path).ok())?))
        }
    }
}
