//! Finds the folders that a configuration gives a program to work in, and in which its sandbox lets it create nothing
//! because files of the gateway are there: `portcullis init` and `portcullis doctor` name them.

use std::env;
use std::path::{Path, PathBuf};

use gateway::config::settings::{Program, ServerSettings, ServerTransport, VariableValue};

/// A folder that a server was given to work in, and in which it can create no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SealedFolder {
    server: String,
    /// The outermost one, if the server was given several.
    folder: PathBuf,
}

impl SealedFolder {
    /// The folder of `server`; `None` if there is none.
    pub(super) fn of(server: &ServerSettings) -> Option<Self> {
        let ServerTransport::Stdio(program) = &server.reach else { return None };
        let plan = program.sandbox.as_ref()?;
        // All of them contain the gateway's files, so each contains the next; the outermost sorts first.
        let folder = plan.sealed_among(&given(program)).into_iter().next()?;
        Some(Self { server: server.name.as_str().to_owned(), folder })
    }

    /// The folder and what it means, as a sentence without its end.
    pub(super) fn said(&self) -> String {
        format!(
            "`{}` is given the folder `{}`, which contains files of the gateway: it can change the other files there and \
             write in folders below it that hold none of the gateway's, but it cannot create or replace a file directly in \
             it (`EACCES`), because it could replace the gateway's own as well",
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

    use super::{SealedFolder, given};

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
            plan.sealed_among(&given(&program))
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
