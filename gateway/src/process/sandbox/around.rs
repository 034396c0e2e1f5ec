//! Determines the paths that a sandboxed program may access: everything or the listed paths, but never the gateway's
//! own files.
//!
//! A Landlock rule covers a folder with everything in it, and no part can be excluded again. So access is granted
//! folder by folder: every folder on the way to a protected file can only be listed, and each of its other entries
//! gets a rule of its own. A file that is created in such a folder later is not accessible.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Most entries of one folder that get rules; the rest is not accessible.
const ENTRIES: usize = 8192;
/// Most links that are followed from one path, as in Linux.
const LINKS: usize = 40;
/// Most links in a protected folder that are followed.
const LINKED: usize = 1024;
/// Folders of the system, which no server has to change.
const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/boot", "/sys"];
/// Devices, and folders of devices, that servers use. No disks, no memory, and no terminals: those of
/// the user's sessions are in the same folder as those that a program creates (`pts`).
const DEVICES: [&str; 13] = [
    "null", "zero", "full", "random", "urandom", "ptmx", "shm", "mqueue", "dri", "snd", "kvm",
    "fuse", "net",
];
/// Folders without files of the gateway: their entries are made by the kernel, such as standard output.
const NO_FILES: [&str; 2] = ["/dev", "/proc"];
/// Prefixes of numbered devices for computation.
const NUMBERED: [&str; 3] = ["nvidia", "video", "kfd"];

/// The access to one path and everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathAccess {
    /// Folders can be listed.
    List,
    /// Folders can be listed, and files be read and executed.
    Read,
    /// Everything that the user may do.
    Full,
}

/// A path that is protected from the program.
#[derive(Debug)]
struct ProtectedPath {
    path: PathBuf,
    /// The access that is left; `None`: no access.
    access: Option<PathAccess>,
    /// What it is on the way to a file that is protected.
    role: PathRole,
}

/// What a protected path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathRole {
    /// The file or folder itself.
    Own,
    /// A link to the file. It remains accessible, but cannot be replaced; what belongs to the file may stand beside it.
    LinkToFile,
    /// A link to a folder on the way. It remains accessible, but cannot be replaced.
    LinkToFolder,
}

/// The Landlock rules for a program, and the protected paths that they respect.
#[derive(Debug, Default)]
pub(super) struct AccessRules {
    /// The accessible paths, with the access to each.
    pub(super) rules: Vec<(PathBuf, PathAccess)>,
    /// Folders with more entries than get rules.
    pub(super) crowded: Vec<PathBuf>,
    kept: Vec<ProtectedPath>,
    user: UserPrivilege,
}

/// Whether the user that a program runs as may change what ordinary users may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UserPrivilege {
    /// It is root.
    Root,
    /// It is any other user.
    #[default]
    Ordinary,
}

impl UserPrivilege {
    /// That of the user that runs the gateway, as which programs run.
    pub(super) fn of_the_process() -> Self {
        if geteuid().is_root() { Self::Root } else { Self::Ordinary }
    }
}

impl AccessRules {
    /// Creates an empty set of rules that denies all access to `hidden` and changes to `fixed`.
    pub(super) fn new(hidden: &[PathBuf], fixed: &[PathBuf], user: UserPrivilege) -> Self {
        let mut around = Self { user, ..Self::default() };
        // The first match counts, so a path that is in both lists is hidden.
        for (paths, access) in [(hidden, None), (fixed, Some(PathAccess::Read))] {
            let linked = paths.iter().flat_map(|folder| linked(folder));
            let all = paths.iter().cloned().chain(linked).flat_map(|path| {
                let own = ProtectedPath { path: real(&path), access, role: PathRole::Own };
                let links = links(&path).into_iter().map(move |path| {
                    let role =
                        if path.is_dir() { PathRole::LinkToFolder } else { PathRole::LinkToFile };
                    ProtectedPath { path, access, role }
                });
                links.chain([own])
            });
            let files = all.filter(|kept| !NO_FILES.iter().any(|made| kept.path.starts_with(made)));
            around.kept.extend(files);
        }
        around
    }

    /// Grants access to everything that exists now.
    pub(super) fn look(&mut self) {
        self.folder(Path::new("/"), PathAccess::Full);
    }

    /// Grants access to the target of `path`, with everything below it.
    pub(super) fn open(&mut self, path: &Path, access: PathAccess) {
        let path = real(path);
        let Some(left) = self.left(&path, access) else { return };
        if path.is_dir() && self.splits(&path, left) {
            self.folder(&path, left);
        } else {
            self.rules.push((path, left));
        }
    }

    /// The part of `access` that is left for a path after the protection of it and its folders; `None` if there is
    /// none.
    pub(super) fn left(&self, path: &Path, access: PathAccess) -> Option<PathAccess> {
        let path = real(path);
        let entries = path.ancestors().filter_map(|one| Some((one.parent()?, one.file_name()?)));
        let mut kept = entries
            .filter_map(|(folder, name)| self.kept.iter().find(|kept| kept.is(folder, name)));
        kept.try_fold(access, |access, kept| kept.access.map(|left| left.min(access)))
    }

    /// The folders that contain a hidden path, directly or in subfolders, from the root down.
    pub(super) fn on_the_way(&self) -> BTreeSet<PathBuf> {
        let hidden = self.kept.iter().filter(|kept| kept.access.is_none());
        hidden.flat_map(|kept| kept.path.ancestors().skip(1)).map(Path::to_owned).collect()
    }

    /// Whether `folder` contains a protected path, so that nothing can be created in it.
    pub(super) fn is_on_the_way(&self, folder: &Path) -> bool {
        let folder = real(folder);
        self.kept.iter().any(|kept| kept.path.starts_with(&folder))
    }

    /// Whether something in `folder` has another access than the rest of it.
    fn splits(&self, folder: &Path, access: PathAccess) -> bool {
        let differs = |kept: &ProtectedPath| kept.access != Some(access);
        self.kept.iter().any(|kept| differs(kept) && kept.path.starts_with(folder))
    }

    fn folder(&mut self, folder: &Path, access: PathAccess) {
        self.rules.push((folder.to_owned(), PathAccess::List));
        // A folder that the gateway cannot list cannot be listed by the program either.
        let Ok(entries) = fs::read_dir(folder) else { return };
        for (n, entry) in entries.flatten().enumerate() {
            if n == ENTRIES {
                self.crowded.push(folder.to_owned());
                return;
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            // The target of a link has a rule of its own, or none.
            if kind.is_symlink() {
                continue;
            }
            let access = self.of(&path, access);
            let name = entry.file_name();
            let kept = self.kept.iter().find(|kept| kept.is(folder, &name));
            match kept.map(|kept| kept.access) {
                Some(left) => self.rules.extend(left.map(|left| (path, left))),
                None if path == Path::new("/dev") => self.devices(&path, access),
                None if kind.is_dir() && self.splits(&path, access) => self.folder(&path, access),
                None => self.rules.push((path, access)),
            }
        }
    }

    /// The access to an entry of a folder with `access`.
    fn of(&self, path: &Path, access: PathAccess) -> PathAccess {
        let system = SYSTEM.iter().any(|system| path == Path::new(system));
        // In `/proc`, a user may change only its own processes, but a privileged user the whole machine.
        let kernel = self.user == UserPrivilege::Root && path == Path::new("/proc");
        if system || kernel { PathAccess::Read } else { access }
    }

    fn devices(&mut self, folder: &Path, access: PathAccess) {
        self.rules.push((folder.to_owned(), PathAccess::List));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES);
        let known = |name: &str| {
            DEVICES.contains(&name) || NUMBERED.iter().any(|begins| name.starts_with(begins))
        };
        let entries = entries.filter(|entry| entry.file_name().to_str().is_some_and(known));
        self.rules.extend(entries.map(|entry| (entry.path(), access)));
    }
}

impl ProtectedPath {
    /// Whether this is the entry `name` of `folder`: the file itself, a copy that an editor, a signer or a lock
    /// creates beside it, or a rotated one with a number in its name.
    fn is(&self, folder: &Path, name: &OsStr) -> bool {
        let (Some(parent), Some(own)) = (self.path.parent(), self.path.file_name()) else {
            return false;
        };
        let is_link = self.role == PathRole::LinkToFile && own == name;
        if parent != folder || self.role == PathRole::LinkToFolder || is_link {
            return false;
        }
        let (own, name) = (own.as_encoded_bytes(), name.as_encoded_bytes());
        let beside = |name: &[u8]| {
            let rest = name.strip_prefix(own);
            rest.is_some_and(|rest| rest.first().is_none_or(|next| b".~-#".contains(next)))
        };
        if beside(name) || name.strip_prefix(b".").is_some_and(beside) {
            return true;
        }
        let dot = own.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
        let split = dot.and_then(|dot| own.split_at_checked(dot));
        let (stem, end) = split.unwrap_or((own, Default::default()));
        let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(end));
        let number = middle.and_then(|middle| middle.strip_prefix(b"."));
        number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    }
}

/// Whether `folder` is a system folder, or in one.
pub(super) fn is_of_the_system(folder: &Path) -> bool {
    SYSTEM.iter().any(|system| folder.starts_with(system))
}

/// The target of a path, with links resolved as far as it exists.
pub(super) fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent != path => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// The links on the way of a path, each with its real location. A link that can be replaced is as good as the file that
/// it leads to.
fn links(path: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        for step in path.ancestors() {
            let (Some(folder), Some(name)) = (step.parent(), step.file_name()) else { continue };
            let Ok(target) = fs::read_link(step) else { continue };
            let link = real(folder).join(name);
            if found.len() < LINKS && !found.contains(&link) {
                left.push(folder.join(target));
                found.push(link);
            }
        }
    }
    found
}

/// The links in a folder whose files are protected, at most as many as are followed from it: what one leads to is protected like a file of the folder.
fn linked(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES);
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.take(LINKED).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{AccessRules, PathAccess, PathRole, ProtectedPath, UserPrivilege};

    #[test]
    fn what_stands_beside_a_hidden_file_and_is_of_it_is_hidden_too() {
        let path = PathBuf::from("/srv/audit.jsonl");
        let mut kept = ProtectedPath { path, access: None, role: PathRole::Own };
        let is = |name: &str| kept.is(Path::new("/srv"), OsStr::new(name));
        for name in [
            "audit.jsonl",
            "audit.jsonl.lock",
            "audit.jsonl~",
            ".audit.jsonl.swp",
            "audit.000000000012.jsonl",
        ] {
            assert!(is(name), "{name}");
        }
        for name in ["audit.py", "audit", "auditor.jsonl", "audit.x.jsonl", "audit.jsonls"] {
            assert!(!is(name), "{name}");
        }
        assert!(!kept.is(Path::new("/etc"), OsStr::new("audit.jsonl")));
        // Beside a link to it too: the gateway writes there what belongs to the file.
        kept.role = PathRole::LinkToFile;
        let is = |name: &str| kept.is(Path::new("/srv"), OsStr::new(name));
        assert!(is("audit.jsonl.lock") && is("audit.000000000012.jsonl") && !is("audit.jsonl"));
        kept.role = PathRole::LinkToFolder;
        assert!(!kept.is(Path::new("/srv"), OsStr::new("audit.jsonl.lock")));
    }

    #[test]
    fn what_a_link_in_a_protected_folder_leads_to_is_protected() {
        let name = format!("portcullis-around-linked-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for name in ["registry", "elsewhere"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let folder = fs::canonicalize(folder).unwrap();
        let at = |name: &str| folder.join(name);
        for name in ["elsewhere/pay.yaml", "elsewhere/data"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink("../elsewhere/pay.yaml", at("registry/pay.yaml")).unwrap();
        let mut around = AccessRules::new(&[at("registry")], &[], UserPrivilege::Ordinary);
        around.look();
        let of = |name: &str| {
            let path = at(name);
            around.rules.iter().find(|(known, _)| *known == path).map(|(_, access)| *access)
        };
        assert_eq!((of("registry"), of("elsewhere/pay.yaml")), (None, None));
        assert_eq!(of("elsewhere/data"), Some(PathAccess::Full));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn everything_but_what_is_kept_back_is_open() {
        let folder = std::env::temp_dir().join(format!("portcullis-around-{}", std::process::id()));
        fs::create_dir_all(folder.join("data")).unwrap();
        for name in ["keys", "code.py", "run"] {
            fs::write(folder.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(folder.join("keys"), folder.join("link")).unwrap();
        let folder = fs::canonicalize(folder).unwrap();
        let at = |name: &str| folder.join(name);
        let mut around = AccessRules::new(&[at("keys")], &[at("run")], UserPrivilege::Root);
        around.look();
        let of = |path: &Path| {
            around.rules.iter().find(|(known, _)| known == path).map(|(_, access)| *access)
        };
        assert_eq!(of(&at("data")), Some(PathAccess::Full));
        assert_eq!(of(&at("code.py")), Some(PathAccess::Full));
        assert_eq!(of(&at("run")), Some(PathAccess::Read));
        assert_eq!((of(&at("keys")), of(&at("link"))), (None, None));
        assert_eq!(
            (of(&folder), of(Path::new("/"))),
            (Some(PathAccess::List), Some(PathAccess::List))
        );
        assert_eq!(of(Path::new("/usr")), Some(PathAccess::Read));
        assert!(around.is_on_the_way(&folder) && !around.is_on_the_way(&at("data")));
        assert!(
            around.on_the_way().contains(&folder) && !around.on_the_way().contains(&at("data"))
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_link_that_leads_to_what_is_kept_back_cannot_be_replaced() {
        let name = format!("portcullis-around-links-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for name in ["real/v1", "named", "data"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let folder = fs::canonicalize(folder).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("real/v1/run"), "").unwrap();
        std::os::unix::fs::symlink("v1", at("real/now")).unwrap();
        std::os::unix::fs::symlink("../real/now/run", at("named/run")).unwrap();
        let mut around = AccessRules::new(&[], &[at("named/run")], UserPrivilege::Ordinary);
        around.look();
        let of = |name: &str| {
            let path = at(name);
            around.rules.iter().find(|(known, _)| *known == path).map(|(_, access)| *access)
        };
        for sealed in ["named", "real", "real/v1"] {
            assert_eq!(of(sealed), Some(PathAccess::List), "{sealed}");
        }
        assert_eq!(
            (of("real/v1/run"), of("data")),
            (Some(PathAccess::Read), Some(PathAccess::Full))
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_listed_is_open_but_for_what_is_kept_back_of_it() {
        let folder = std::env::temp_dir().join(format!("portcullis-listed-{}", std::process::id()));
        fs::create_dir_all(folder.join("registry/mirror")).unwrap();
        for name in ["keys", "code.py", "run"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let folder = fs::canonicalize(folder).unwrap();
        let at = |name: &str| folder.join(name);
        let opened = |path: &Path, access: PathAccess| {
            let mut around = AccessRules::new(
                &[at("keys"), at("registry")],
                &[at("run")],
                UserPrivilege::Ordinary,
            );
            around.open(path, access);
            around.rules
        };
        let all = opened(&folder, PathAccess::Full);
        let of = |name: &str| all.iter().find(|(path, _)| *path == at(name)).map(|(_, open)| *open);
        assert_eq!(all.first(), Some(&(folder.clone(), PathAccess::List)));
        assert_eq!((of("code.py"), of("run")), (Some(PathAccess::Full), Some(PathAccess::Read)));
        assert_eq!((of("keys"), of("registry")), (None, None));
        // Opened individually: also a copy beside a hidden file, and a file in a hidden folder.
        for closed in ["keys", "keys.lock", "registry", "registry/mirror"] {
            assert!(opened(&at(closed), PathAccess::Read).is_empty(), "{closed}");
        }
        assert_eq!(opened(&at("run"), PathAccess::Full), [(at("run"), PathAccess::Read)]);
        assert_eq!(opened(&at("code.py"), PathAccess::Full), [(at("code.py"), PathAccess::Full)]);
        fs::remove_dir_all(folder).unwrap();
    }
}
