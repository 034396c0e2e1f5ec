//! Compiles references to secrets: an environment variable, a file, or a program that prints the secret.

use std::path::PathBuf;
use std::time::Duration;

use super::compiler::{RequiredSecret, SettingsCompiler};
use super::raw::RawSecret;
use super::{SecretCommand, SecretRef};

/// Maximum number of arguments of a program that prints a secret.
const ARGUMENTS: usize = 64;

impl SettingsCompiler<'_> {
    /// A secret in an environment variable, which is kept from upstream programs.
    pub(super) fn secret_in_variable(&mut self, at: &str, variable: String) -> SecretRef {
        self.uses.variables.insert(variable.clone());
        let secret = SecretRef::Env(variable);
        self.secrets.push(RequiredSecret::new(format!("{at}/fromEnv"), secret.clone()));
        secret
    }

    /// A secret in a file, which is kept from upstream programs.
    pub(super) fn secret_in_file(&mut self, at: &str, file: &str) -> SecretRef {
        let file = self.path(file);
        self.uses.files.push(file.clone());
        let secret = SecretRef::File(file);
        self.secrets.push(RequiredSecret::new(format!("{at}/fromFile"), secret.clone()));
        secret
    }

    pub(super) fn secret(&mut self, at: &str, raw: RawSecret) -> Option<SecretRef> {
        let times = [
            ("cacheTime", raw.cache_time.is_some()),
            ("timeout", raw.timeout.is_some()),
            ("maxStale", raw.max_stale.is_some()),
        ];
        for (key, _) in times.iter().filter(|(_, given)| *given && raw.from_command.is_none()) {
            let message = format!("`{key}` belongs to `fromCommand`");
            self.report(&format!("{at}/{key}"), message, "remove it");
        }
        match raw {
            RawSecret { from_env: Some(variable), from_file: None, from_command: None, .. } => {
                Some(self.secret_in_variable(at, variable))
            }
            RawSecret { from_env: None, from_file: Some(file), from_command: None, .. } => {
                Some(self.secret_in_file(at, &file))
            }
            RawSecret { from_env: None, from_file: None, from_command: Some(line), .. } => {
                let times = [&raw.cache_time, &raw.timeout, &raw.max_stale];
                self.secret_of_program(at, line, times.map(|time| time.as_deref()))
            }
            _ => {
                let help = "give exactly one of `fromEnv`, `fromFile` and `fromCommand`";
                self.report(at, "the secret has exactly one source", help);
                None
            }
        }
    }

    /// A secret that a program prints; the times are `cacheTime`, `timeout` and `maxStale`.
    fn secret_of_program(
        &mut self,
        at: &str,
        line: Vec<String>,
        [cache_time, timeout, max_stale]: [Option<&str>; 3],
    ) -> Option<SecretRef> {
        const MINUTE: Duration = Duration::from_secs(60);
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let command = format!("{at}/fromCommand");
        let mut words = line.into_iter();
        let program = words.next().map(PathBuf::from);
        let args: Vec<_> = words.collect();
        if args.len() > ARGUMENTS || args.iter().any(|arg| arg.contains('\0')) {
            let message = format!("more than {ARGUMENTS} arguments, or one with a NUL in it");
            self.report(&command, message, "write a script, and name that");
        }
        let Some(program) = program.filter(|program| program.is_absolute()) else {
            let help = "write a list: `[/usr/bin/vault, kv, get, -field=token, secret/crm]`; no shell reads it and no \
                        `PATH` is searched";
            self.report(&command, "it does not begin with the absolute path of a program", help);
            return None;
        };
        let mut time = |key: &str, text, usual, most| {
            self.time_within(&format!("{at}/{key}"), text, usual, most)
        };
        let cache_time = time("cacheTime", cache_time, MINUTE * 5, DAY);
        let timeout = time("timeout", timeout, MINUTE / 6, MINUTE);
        let max_stale = time("maxStale", max_stale, MINUTE * 60, DAY);
        let secret = SecretCommand { program, args, cache_time, timeout, max_stale };
        // Upstream programs may run this program too, but must not change it or the code that it runs.
        self.uses.believed.push(secret.program.clone());
        match secret.named() {
            Ok(named) => self.uses.believed.extend(named),
            Err(error) => {
                let message = format!("it cannot be looked at what the program runs: {error}");
                self.report(
                    &command,
                    message,
                    "write a script that says the secret, and name that",
                );
            }
        }
        let secret = SecretRef::Command(Box::new(secret));
        self.secrets.push(RequiredSecret::new(command, secret.clone()));
        Some(secret)
    }
}
