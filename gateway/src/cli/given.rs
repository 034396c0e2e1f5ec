//! Finds the folders that a configuration gives a program to work in, and in which its sandbox lets it create nothing
//! because files of the gateway are there: `portcullis init` and `portcullis doctor` name them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use gateway::config::settings::{Program, ServerSettings, ServerTransport, VariableValue};
use policy::definition::drift::visible;

/// A folder that a server was given to work in, and in which it can create no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SealedFolder {
    server: String,
    folder: PathBuf,
}

impl SealedFolder {
    /// The folders of `server`. A folder within another one of them is left out, because what is done about the outer
    /// one covers it.
    pub(super) fn all(server: &ServerSettings) -> Vec<Self> {
        let ServerTransport::Stdio(program) = &server.reach else { return Vec::new() };
        let folders = outermost_sealed(program).into_iter();
        folders.map(|folder| Self { server: server.name.as_str().to_owned(), folder }).collect()
    }

    /// The folder and what it means, as a sentence without its end.
    pub(super) fn said(&self) -> String {
        format!(
            "`{}` is given the folder `{}`, which contains files of the gateway: it cannot create, rename or replace a file \
             directly in it (`EACCES`), because it could replace the gateway's own as well. Many programs save a file by \
             replacing it, and cannot change one there either. In folders below that hold none of the gateway's it writes \
             as usual",
            self.server,
            self.folder.display()
        )
    }

    /// What the operator can do about it.
    pub(super) fn mend(&self) -> String {
        let apart = self.apart();
        format!(
            "if it has to, move the configuration and the files that it names into a folder outside, such as `{}`, and name \
             the configuration there with `-c`; or have the server write in a folder below (docs/sandbox.md, \"A folder to \
             write in\")",
            apart.display()
        )
    }

    /// A folder for the gateway's files that is outside of this one.
    pub(super) fn apart(&self) -> PathBuf {
        match (self.folder.parent(), self.folder.file_name()) {
            (Some(parent), Some(name)) => {
                let mut name = name.to_owned();
                name.push("-portcullis");
                parent.join(name)
            }
            _ => PathBuf::from("/etc/portcullis"),
        }
    }
}

/// The note on a program that is a script in the folder of the configuration, or is given a file there, and can create
/// no files beside it; `None` if there is no such file.
pub(super) fn beside(server: &ServerSettings, config: &Path) -> Option<String> {
    let ServerTransport::Stdio(program) = &server.reach else { return None };
    let plan = program.sandbox.as_ref()?;
    let config = fs::canonicalize(config).ok()?;
    let folder = config.parent()?;
    if plan.sealed_among(&[folder.to_owned()]).is_empty() {
        return None;
    }
    let base = program.directory.clone().or_else(|| env::current_dir().ok())?;
    let is_beside = |word: &&String| {
        let found = fs::canonicalize(base.join(word)).ok();
        found.is_some_and(|file| file.is_file() && file.parent() == Some(folder))
    };
    let word = program.args.iter().find(is_beside)?;
    Some(format!(
        "`{}` of the server `{}` is in the folder of the configuration, where its program can create no files and open no \
         new ones; if it writes files, put the server into a folder of its own (docs/sandbox.md, \"A folder to write in\")",
        visible(word),
        server.name
    ))
}

/// The folders that a program is given and in which it can create no file, without those within another one of them.
fn outermost_sealed(program: &Program) -> Vec<PathBuf> {
    let Some(plan) = &program.sandbox else { return Vec::new() };
    let mut outermost: Vec<PathBuf> = Vec::new();
    // The folders are sorted, so that each comes after the folders that contain it.
    for folder in plan.sealed_among(&given(program)) {
        if !outermost.iter().any(|outer| folder.starts_with(outer)) {
            outermost.push(folder);
        }
    }
    outermost
}

/// The existing folders that a program is given: in its arguments, in its environment, as its working directory, and in
/// the list of its sandbox.
fn given(program: &Program) -> Vec<PathBuf> {
    let base = program.directory.clone().or_else(|| env::current_dir().ok()).unwrap_or_default();
    let literal = |value: &VariableValue| match value {
        VariableValue::Literal(text) => Some(text.clone()),
        VariableValue::Secret(_) => None,
    };
    let values = program.env.iter().filter_map(|(_, value)| literal(value));
    let words = program.args.iter().cloned().chain(values);
    // `--root=/srv/shared` names a folder as well as `/srv/shared` does.
    let named = words.filter_map(|word| match word.split_once('=') {
        Some((flag, path)) if flag.starts_with('-') => folder(&base, path),
        Some(_) | None => folder(&base, &word),
    });
    let listed = program.sandbox.iter().flat_map(|plan| plan.write.iter().cloned());
    named.chain(listed).chain(program.directory.clone()).collect()
}

/// The folder that a word names, if it looks like a path and there is such a folder.
fn folder(base: &Path, word: &str) -> Option<PathBuf> {
    // A bare word is more likely the name of something else.
    let is_path = word == "." || word == ".." || word.contains('/');
    let path = base.join(word);
    (is_path && path.is_dir()).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use gateway::config::settings::{Program, VariableValue};
    use gateway::process::sandbox::SandboxPlan;

    use super::{SealedFolder, outermost_sealed};

    #[test]
    fn a_folder_with_files_of_the_gateway_is_found_among_those_that_a_program_is_given() {
        let root = env_dir("given");
        fs::create_dir_all(root.join("data")).unwrap();
        let root = fs::canonicalize(root).unwrap();
        let mut plan = SandboxPlan::usual();
        plan.keep_back(&[root.join("portcullis.yaml")], &[]);
        let of = |args: &[&str], variable: &str| {
            let program = Program {
                command: "server".to_owned(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: vec![("ROOT".to_owned(), VariableValue::Literal(variable.to_owned()))],
                directory: None,
                sandbox: Some(plan.clone()),
            };
            outermost_sealed(&program)
        };
        let at = root.to_str().unwrap();
        let below = format!("{at}/data");
        for (args, variable) in
            [(vec!["-y", at], "x"), (vec![&*format!("--root={at}")], "x"), (vec!["-y"], at)]
        {
            assert_eq!(of(&args, variable), std::slice::from_ref(&root), "{args:?}");
        }
        assert_eq!(of(&[&below, "stdio"], ""), Vec::<PathBuf>::new());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn each_given_folder_with_files_of_the_gateway_is_found_unless_another_one_contains_it() {
        let root = env_dir("apart");
        fs::create_dir_all(root.join("project/below")).unwrap();
        fs::create_dir_all(root.join("secrets")).unwrap();
        let root = fs::canonicalize(root).unwrap();
        let (project, secrets) = (root.join("project"), root.join("secrets"));
        let mut hidden = vec![project.join("below/portcullis.yaml"), secrets.join("key")];
        // More folders before them than a message names.
        for n in 0..20 {
            let folder = root.join(format!("log-{n}"));
            fs::create_dir(&folder).unwrap();
            hidden.push(folder.join("audit.jsonl"));
        }
        let mut plan = SandboxPlan::usual();
        plan.keep_back(&hidden, &[]);
        let of = |folders: &[&PathBuf]| {
            let program = Program {
                command: "server".to_owned(),
                args: folders.iter().map(|folder| folder.to_str().unwrap().to_owned()).collect(),
                env: Vec::new(),
                directory: None,
                sandbox: Some(plan.clone()),
            };
            outermost_sealed(&program)
        };
        let below = project.join("below");
        assert_eq!(of(&[&secrets, &below, &project]), [project.clone(), secrets.clone()]);
        assert_eq!(of(&[&secrets, &root, &project]), std::slice::from_ref(&root));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_advice_names_a_folder_outside() {
        let sealed =
            SealedFolder { server: "files".to_owned(), folder: PathBuf::from("/home/me/project") };
        assert_eq!(sealed.apart(), PathBuf::from("/home/me/project-portcullis"));
        assert!(sealed.said().contains("`/home/me/project`"), "{}", sealed.said());
        assert!(sealed.mend().contains("`/home/me/project-portcullis`"), "{}", sealed.mend());
    }

    fn env_dir(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("portcullis-{name}-{}", std::process::id()))
    }
}
