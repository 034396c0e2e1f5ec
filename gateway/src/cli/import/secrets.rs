//! Decides which texts may be copied into a configuration or shown. A text is harmless only if it is made of known or
//! ordinary words in a place where no secret is expected; everything else becomes a variable.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway::config::settings::variables::replaced;

/// Schemes that may precede a secret in `Authorization`.
pub(super) const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];
/// Parts of the names of variables, headers and flags that hold secrets.
const NAMES: [&str; 23] = [
    "key", "token", "secret", "pass", "pwd", "pw", "auth", "cred", "pin", "cookie", "session",
    "bearer", "sign", "private", "hook", "dsn", "conn", "otp", "jwt", "salt", "seed", "phrase",
    "mnemonic",
];
/// The same, but only at the end of a word: `GITHUB_PAT`, and not `FILE_PATH`.
const NAME_END: &str = "pat";
/// Arguments after which a word names what to run: subcommands of runners and of servers.
const SUBCOMMANDS: [&str; 8] = ["run", "exec", "dlx", "x", "tool", "start", "serve", "mcp"];
/// Last words of the names of quantities, for which a long number is expected.
const COUNTS: [&str; 14] = [
    "timeout", "ms", "seconds", "limit", "size", "port", "max", "min", "count", "interval", "ttl",
    "depth", "length", "bytes",
];
/// Most digits of a quantity.
const COUNT: usize = 9;
/// Most items of a list of words.
const ITEMS: usize = 16;
const ITEM_WORDS: usize = 3;
/// Longest item of a list of words, in bytes.
const ITEM: usize = 24;
/// Number of consonants in a row that no word has.
const CONSONANTS: usize = 5;
/// Words that are harmless as a value, or alone among arguments.
const WORDS: [&str; 29] = [
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "production",
    "development",
    "info",
    "debug",
    "warn",
    "error",
    "run",
    "serve",
    "start",
    "stdio",
    "mcp",
    "server",
    "exec",
    "dlx",
    "tool",
    "x",
    "http",
    "sse",
    "json",
    "main",
    "dev",
    "latest",
    "canary",
];
/// Modes that are harmless as the value of a variable or of a long flag.
const MODES: [&str; 28] = [
    "read-only",
    "readonly",
    "read-write",
    "ro",
    "rw",
    "none",
    "all",
    "auto",
    "always",
    "never",
    "enabled",
    "disabled",
    "local",
    "remote",
    "staging",
    "INFO",
    "DEBUG",
    "WARN",
    "WARNING",
    "ERROR",
    "warning",
    "trace",
    "text",
    "utf-8",
    "UTF-8",
    "streamable-http",
    "headless",
    "chromium",
];
/// Areas of the IANA time zone database.
const ZONES: [&str; 11] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
];
/// Areas in the names of cloud regions; `SIDES` has the directions that follow them.
const REGIONS: [&str; 16] = [
    "us",
    "eu",
    "ap",
    "sa",
    "ca",
    "me",
    "af",
    "il",
    "mx",
    "cn",
    "europe",
    "asia",
    "australia",
    "northamerica",
    "southamerica",
    "africa",
];
const SIDES: [&str; 9] = [
    "north",
    "south",
    "east",
    "west",
    "central",
    "northeast",
    "northwest",
    "southeast",
    "southwest",
];
/// Last words of the names of flags and variables that hold a repository.
const REPOSITORIES: [&str; 3] = ["repo", "repos", "repository"];
/// Hosts of repositories that anybody can see.
const FORGES: [&str; 4] = ["github.com", "gitlab.com", "bitbucket.org", "codeberg.org"];
/// Flags of package runners that take no value.
const ALONE: [&str; 8] = ["-y", "--yes", "-q", "--quiet", "--rm", "-i", "--init", "--stdio"];
/// First folders of paths that are harmless.
const ROOTS: [&str; 25] = [
    "path",
    "projects",
    "repos",
    "code",
    "media",
    "run",
    "lib",
    "nix",
    "Volumes",
    "Applications",
    "srv",
    "tmp",
    "home",
    "data",
    "opt",
    "usr",
    "var",
    "mnt",
    "workspace",
    "workspaces",
    "etc",
    "app",
    "Users",
    "root",
    "bin",
];
/// Extensions of files that are programs or their settings.
const FILES: [&str; 11] =
    ["js", "mjs", "cjs", "ts", "py", "jar", "json", "jsonc", "yaml", "yml", "toml"];
/// Longest word, and longest number, that is not taken for random text.
const WORD: usize = 15;
const NUMBER: usize = 5;
/// Longest abbreviation with digits in it: `K8S`, `N8N`.
const SHORT: usize = 4;
/// Most words of a name.
const PARTS: usize = 10;
/// Common names of variables and tools that are longer than a word.
const LONG: [&str; 5] = [
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "PYTHONNOUSERSITE",
    "sequentialthinking",
];

/// Whether the name indicates a secret.
fn is_named(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    NAMES.iter().any(|word| lower.contains(word))
        || words(name).iter().any(|word| word.to_ascii_lowercase().ends_with(NAME_END))
}

/// Whether `value` of the variable or flag `name` can be copied from the file of a client. This allows more than
/// [`is_plain`]: ordinary words, lists of them, sizes and languages as well, if the name does not indicate a secret.
/// Long text, capitals, and digits among letters could be random.
pub(super) fn is_imported(name: &str, value: &str) -> bool {
    let bare = name.trim_start_matches('-');
    is_plain(name, value)
        || bare.len() > 1
            && !is_named(name)
            && (is_ordinary(value) || is_count(bare, value) || value.parse::<IpAddr>().is_ok())
}

/// Whether a value is made of ordinary words, or is a size or a language.
fn is_ordinary(value: &str) -> bool {
    const SWITCHES: [&str; 6] = ["True", "False", "TRUE", "FALSE", "Yes", "No"];
    SWITCHES.contains(&value)
        || value.split(',').count() <= ITEMS && value.split(',').all(is_lower_words)
        || value
            .split_once('x')
            .is_some_and(|(width, height)| is_number(width) && is_number(height))
        || value.split_once('.').is_some_and(|(whole, part)| is_number(whole) && is_number(part))
        || is_language(value)
}

/// Whether a text is a number of at most [`NUMBER`] digits.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= NUMBER && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a value is a number, and `name` that of a quantity.
fn is_count(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_']).next().unwrap_or_default();
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    COUNTS.contains(&last) && digits && value.len() <= COUNT
}

/// Whether an item is one to three words of lower-case letters, with `-`, `_` or `.` between them: `ide-assistant`.
fn is_lower_words(item: &str) -> bool {
    let word = |word: &str| {
        let is_small = word.bytes().all(|byte| byte.is_ascii_lowercase());
        let mut runs = word.split(['a', 'e', 'i', 'o', 'u', 'y']);
        !word.is_empty()
            && word.len() <= WORD
            && is_small
            && (word.len() < CONSONANTS || runs.all(|run| run.len() < CONSONANTS))
    };
    let mut parts = item.split(['-', '_', '.']);
    item.len() <= ITEM && parts.clone().count() <= ITEM_WORDS && parts.all(word)
}

/// Whether a value is a language code, with or without a country and an encoding: `de`, `pt-BR`, `en_US.UTF-8`.
fn is_language(value: &str) -> bool {
    let value = value.strip_suffix(".UTF-8").unwrap_or(value);
    let (language, country) = value.split_once(['-', '_']).unwrap_or((value, "US"));
    (2..=3).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_lowercase())
        && country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Whether an argument is a flag in camel case without a value: `--readOnly`.
fn is_camel_flag(text: &str) -> bool {
    let Some(name) = text.strip_prefix("--") else { return false };
    let words = words(name);
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_alphabetic())
        && words.len() <= SHORT
        && words.iter().all(|word| (2..=WORD).contains(&word.len()))
}

/// Whether an argument is a flag without a value.
pub(super) fn is_flag_name(text: &str) -> bool {
    is_flag(text) || is_camel_flag(text) || is_odd_flag(text)
}

/// Whether an argument is a long flag whose value may follow as the next argument.
pub(super) fn may_be_followed(text: &str) -> bool {
    text.starts_with("--") && is_flag_name(text) && !ALONE.contains(&text)
}

/// Whether the first argument of a program is a subcommand in known words: `start-mcp-server`.
fn is_order(text: &str) -> bool {
    text.split('-').count() <= SHORT && text.split('-').all(|word| WORDS.contains(&word))
}

/// Whether a text is a package in a repository, as Python runners take it: `git+https://HOST/OWNER/NAME@VERSION`.
fn is_repository_package(text: &str) -> bool {
    let Some(url) = text.strip_prefix("git+") else { return false };
    // An `@` before the path would separate user information from the host.
    let path = url.splitn(4, '/').nth(3).map_or(url.len(), |path| url.len() - path.len());
    let at = url.rfind('@').filter(|at| *at >= path);
    let (url, version) = match at.and_then(|at| url.split_at_checked(at)) {
        Some((url, version)) => (url, version.strip_prefix('@')),
        None => (url, None),
    };
    let is_hash = |version: &str| {
        (7..=40).contains(&version.len()) && version.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let numbered = |version: &str| {
        let number = version.strip_prefix('v').unwrap_or(version);
        number.starts_with(|c: char| c.is_ascii_digit()) && is_words(number, "-.")
    };
    let is_version =
        |version: &str| is_hash(version) || numbered(version) || is_lower_words(version);
    (is_plain_url(url) || is_of_forge(url)) && version.is_none_or(is_version)
}

/// Whether a URL is that of a repository at a public forge, whose owner and name may have capitals.
fn is_of_forge(url: &str) -> bool {
    let path = FORGES.iter().find_map(|forge| url.strip_prefix("https://")?.strip_prefix(forge));
    let Some(path) = path.and_then(|path| path.strip_prefix('/')) else { return false };
    let path = path.strip_suffix(".git").unwrap_or(path);
    let plain = |part: &str| part.len() <= 2 * WORD && is_plain_name(part);
    path.split_once('/').is_some_and(|(owner, name)| {
        plain(owner) && plain(name) && !owner.contains('/') && !name.contains('/')
    })
}

/// Whether an argument is a path of several ordinary words, wherever it begins: `/another/allowed/directory`.
fn is_folder_of_words(text: &str) -> bool {
    let parts = text.strip_prefix('/').map(|rest| rest.split('/'));
    parts.is_some_and(|parts| parts.clone().count() >= 3 && parts.clone().all(is_lower_words))
}

/// Whether an argument is a flag in snake case, or a known word behind one `-`: `--cluster_endpoint`, `-debug`.
fn is_odd_flag(text: &str) -> bool {
    let snake = text.strip_prefix("--").is_some_and(|name| {
        let word = |word: &str| {
            (2..=WORD).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        name.contains('_') && name.split('_').count() <= SHORT && name.split('_').all(word)
    });
    snake || text.strip_prefix('-').is_some_and(|word| word.len() > 1 && WORDS.contains(&word))
}

/// Whether an argument can be copied from the file of a client; see [`is_imported`].
pub(super) fn is_imported_argument(at: ArgPosition<'_>, text: &str) -> bool {
    if is_plain_argument(at, text) || is_camel_flag(text) || is_odd_flag(text) {
        return true;
    }
    let is_free = match at {
        ArgPosition::First => true,
        ArgPosition::After(flag) => !flag.starts_with('-') || ALONE.contains(&flag),
        _ => false,
    };
    if is_free && is_folder_of_words(text) {
        return true;
    }
    let package = |text: &str| {
        let bare = ["npm:", "jsr:"].iter().find_map(|registry| text.strip_prefix(registry));
        is_package(without_extras(bare.unwrap_or(text))) || is_repository_package(text)
    };
    if let Some((flag, value)) = text.split_once('=').filter(|(flag, _)| is_flag_name(flag)) {
        return is_imported(flag, value)
            || at == ArgPosition::Package && !is_named(flag) && package(value);
    }
    match at {
        ArgPosition::Package => package(text),
        ArgPosition::Executable => is_package(text) && !text.contains(['@', '/', '=']),
        ArgPosition::Variable => {
            let pair = text.split_once('=');
            pair.is_some_and(|(name, value)| is_variable(name) && is_imported(name, value))
        }
        ArgPosition::Mount => is_volume(text),
        ArgPosition::Image | ArgPosition::Numbers | ArgPosition::Switch => false,
        ArgPosition::After(flag) if flag.starts_with('-') && !ALONE.contains(&flag) => {
            is_flag_name(flag) && is_imported(flag, text)
        }
        ArgPosition::After(word) if SUBCOMMANDS.contains(&word) => is_lower_words(text),
        ArgPosition::After(_) | ArgPosition::First => is_order(text),
    }
}

/// Whether `value` of the variable or header `name` can be shown.
pub(in crate::cli) fn is_plain(name: &str, value: &str) -> bool {
    !is_named(name) && (is_value(value) || is_setting(name, value))
}

/// Whether a value is harmless under this name: a mode, or a repository if the name calls for one. A flag of one letter
/// says too little.
fn is_setting(name: &str, value: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['-', '_']).next().unwrap_or_default();
    let repository = REPOSITORIES.contains(&last) && is_repository(value);
    name.len() > 1 && (MODES.contains(&value) || repository)
}

/// Whether a text is `OWNER/NAME` in plain words.
fn is_repository(text: &str) -> bool {
    let plain = |part: &str| {
        let is_word = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
        !part.is_empty() && part.chars().all(is_word) && is_words(part, "-_")
    };
    text.len() <= 2 * WORD
        && text.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

/// Whether a text is the name of an IANA time zone.
fn is_zone(text: &str) -> bool {
    let is_place =
        |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase()) && is_words(part, "_-");
    match text.split_once('/') {
        None => ["UTC", "GMT"].contains(&text),
        Some((area, places)) => {
            ZONES.contains(&area)
                && places.len() <= 2 * WORD
                && places.split('/').count() <= 2
                && places.split('/').all(is_place)
        }
    }
}

/// Whether a text is a cloud region, such as `eu-west-1`, `us-gov-east-1` or `europe-west4`.
fn is_region(text: &str) -> bool {
    let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = text.len() - name.len();
    let parts: Vec<&str> = name.strip_suffix('-').unwrap_or(name).split('-').collect();
    let known = match parts[..] {
        [area, side] | [area, "gov", side] => REGIONS.contains(&area) && SIDES.contains(&side),
        _ => false,
    };
    known && (1..=2).contains(&digits)
}

/// Whether a value is harmless under any name that does not indicate a secret: a number, a known word, a place.
fn is_value(value: &str) -> bool {
    let number = value.len() <= NUMBER && value.bytes().all(|byte| byte.is_ascii_digit());
    number
        || WORDS.contains(&value)
        // The in-memory database of SQLite.
        || value == ":memory:"
        || is_zone(value)
        || is_region(value)
        || is_path(value)
        || is_plain_url(value)
}

/// Whether a text is a path in plain words, below an ordinary folder or to a program.
fn is_path(text: &str) -> bool {
    let Some(absolute) = text.strip_prefix('/') else {
        let end = text.rsplit_once('.').map(|(_, end)| end);
        return end.is_some_and(|end| FILES.contains(&end)) && is_words(text, "/-_.");
    };
    let root = absolute.split('/').next().unwrap_or_default();
    ROOTS.contains(&root) && is_words(absolute, "/-_.")
}

/// Whether a URL contains nothing but plain names: no user, no query, no segment that could be random.
pub(in crate::cli) fn is_plain_url(text: &str) -> bool {
    let Some(("http" | "https", rest)) = text.split_once("://") else { return false };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |part: &str| {
        let version = part.strip_prefix('v').is_some_and(|rest| rest.len() < 3);
        let digits = part.bytes().any(|byte| byte.is_ascii_digit());
        is_words(part, "-_.")
            && (version || !digits)
            && !part.bytes().any(|b| b.is_ascii_uppercase())
    };
    is_plain_host(host) && path.split('/').all(plain)
}

/// Whether a host, with or without a port, is an address or made of plain words. The names of some hosts are random,
/// and act as credentials.
fn is_plain_host(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, after)) => (host, after.strip_prefix(':').or(after.is_empty().then_some("0"))),
        None => text.split_once(':').map_or((text, Some("0")), |(host, port)| (host, Some(port))),
    };
    let host_is_plain = match bracketed {
        Some(_) => host.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok() || host.split('.').all(is_plain_label),
    };
    host_is_plain && port.is_some_and(is_number)
}

/// Whether a label of a host name is made of plain words.
fn is_plain_label(label: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    !label.contains(odd) && is_plain_name(label)
}

/// Whether `text` is made of words and small numbers: letters of one case or with a capital, then digits.
fn is_words(text: &str, between: &str) -> bool {
    text.split(|c| between.contains(c)).all(|part| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let letters = part.strip_suffix(digits).unwrap_or(part);
        let tail = letters.get(1..).unwrap_or_default();
        let even = tail.bytes().all(|b| b.is_ascii_lowercase())
            || letters.bytes().all(|b| b.is_ascii_uppercase());
        let small = digits.len() <= NUMBER && digits.bytes().all(|byte| byte.is_ascii_digit());
        letters.len() <= WORD && even && small
    })
}

/// Whether an argument is a flag in kebab case without a value.
fn is_flag(text: &str) -> bool {
    let name = text.trim_start_matches('-');
    let dashes = text.len() - name.len();
    (1..=2).contains(&dashes)
        && (name.len() == 1 || dashes == 2)
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        && name.split('-').all(|word| word.len() <= WORD)
}

/// Whether a text is a package as a runner takes it, with or without a version and a scope.
fn is_package(text: &str) -> bool {
    let (name, version) = match (text.split_once("=="), text.rsplit_once('@')) {
        (Some((name, version)), _) => (name, Some(version)),
        (None, Some((name, version))) if !name.is_empty() => (name, Some(version)),
        (None, _) => (text, None),
    };
    let scoped = name.strip_prefix('@').unwrap_or(name);
    let even = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let word = |word: &str| {
        let digits = word.bytes().any(|byte| byte.is_ascii_digit());
        word.len() <= if digits { WORD } else { 2 * WORD }
    };
    let words = scoped.chars().all(even) && scoped.split(['-', '_', '.', '/']).all(word);
    let scope =
        name.strip_prefix('@').map(|rest| rest.split_once('/').map_or(rest, |(scope, _)| scope));
    let version = version.is_none_or(|version| {
        version == "latest"
            || version.len() <= 24
                && version.starts_with(|c: char| c.is_ascii_digit())
                && version.split(['.', '-', '+']).all(|part| part.len() <= 8)
    });
    words && scope.is_none_or(is_plain_scope) && version && !scoped.is_empty()
}

/// Whether the scope of a package is made of plain words. Words of lower-case letters may be twice as long as others.
fn is_plain_scope(scope: &str) -> bool {
    let long =
        |word: &str| word.len() <= 2 * WORD && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let plain = |word: &str| long(word) || is_plain_name(word);
    !scope.is_empty() && scope.split(['-', '_', '.']).all(plain)
}

/// Whether a text is a container image with its tag or digest.
fn is_image(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(t, d)| (t, Some(d)));
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:");
        hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let colon = text.rfind(':').filter(|colon| text.rfind('/').is_none_or(|slash| slash < *colon));
    let (name, tag) = match colon.and_then(|colon| text.split_at_checked(colon)) {
        Some((name, tag)) => (name, tag.strip_prefix(':')),
        None => (text, None),
    };
    let small = |part: &str| part.len() <= 10;
    let is_tag = |tag: &str| {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c));
        !tag.is_empty() && tag.len() <= 32 && !tag.contains(odd) && tag.split(['.', '-']).all(small)
    };
    let (host, path) = name.split_once('/').map_or((None, name), |(h, p)| (Some(h), p));
    let is_host =
        |host: &str| is_plain_host(host) && is_package(host.split(':').next().unwrap_or_default());
    !text.is_empty()
        && digest.is_none_or(is_digest)
        && tag.is_none_or(is_tag)
        && host.is_none_or(is_host)
        && !path.contains('@')
        && is_package(path)
}

/// Whether a text is the name of an environment variable in capitals.
fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        && text.split('_').all(|word| word.len() <= WORD)
}

/// Whether a text is a mount of a container: paths and options.
fn is_mount(text: &str) -> bool {
    const HOW: [&str; 8] = ["ro", "rw", "z", "Z", "cached", "delegated", "readonly", "bind"];
    const KEYS: [&str; 7] = ["type", "src", "source", "dst", "destination", "target", "readonly"];
    let part = |part: &str| HOW.contains(&part) || is_path(part);
    match text.contains('=') {
        true => text.split(',').all(|one| match one.split_once('=') {
            Some((key, value)) => KEYS.contains(&key) && (part(value) || WORDS.contains(&value)),
            None => part(one),
        }),
        false => text.split(':').all(part),
    }
}

/// Whether a text is a mount of a volume that has an ordinary name: `server-data:/root`.
fn is_volume(text: &str) -> bool {
    let (name, rest) = text.split_once(':').unwrap_or_default();
    is_lower_words(name) && rest.starts_with('/') && is_mount(rest)
}

/// Whether a text has only the numbers of ports or users, and addresses: `127.0.0.1:8085:8085`, `53:53/udp`.
fn is_numbers(text: &str) -> bool {
    let bare = ["/tcp", "/udp"].iter().find_map(|kind| text.strip_suffix(kind)).unwrap_or(text);
    bare.split([':', '-', '.']).all(is_number) && bare.split([':', '-', '.']).count() <= PARTS
}

/// Whether a text is an option without a value: `/c`, `-i`, `--`, `exec`.
fn is_switch(text: &str) -> bool {
    let name = text.trim_start_matches(['/', '-']);
    text == "--" || name.len() == 1 || is_lower_words(name)
}

/// Whether the text around a placeholder can be copied: nothing, folders below it, or the name of a flag before it.
pub(super) fn is_plain_around(name: &str, bare: &str) -> bool {
    let below = |text: &str| text.is_empty() || text.starts_with('/') && is_words(text, "/-_.");
    match bare.split_once('=') {
        Some((flag, rest)) => is_flag(flag) && !is_named(flag) && below(rest),
        None => !is_named(name) && below(bare) || is_before_secret(bare),
    }
}

/// Whether a text is what stands before a secret that is referred to: a scheme, a header, or both.
fn is_before_secret(bare: &str) -> bool {
    let is_scheme = |text: &str| {
        SCHEMES.iter().any(|scheme| text.strip_prefix(scheme.trim_end()).is_some_and(|t| t == " "))
    };
    match bare.split_once(':') {
        Some((header, rest)) => {
            let rest = rest.strip_prefix(' ').unwrap_or(rest);
            is_plain_name(header) && (rest.is_empty() || is_scheme(rest))
        }
        None => is_scheme(bare),
    }
}

/// Position of an argument of a program, as far as it matters for its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum ArgPosition<'a> {
    /// The package that a package runner runs.
    Package,
    /// The executable of a package, if an option names the package.
    Executable,
    /// The image that a container runner runs.
    Image,
    /// An environment variable of a container, with or without a value.
    Variable,
    /// A mount of a container.
    Mount,
    /// Ports of a container, or its user: numbers and addresses.
    Numbers,
    /// An option without a value of a program that starts another one: `/c` of `cmd`.
    Switch,
    /// An argument after this one.
    After(&'a str),
    /// The first argument of the program.
    First,
}

/// Whether an argument of a program can be shown.
pub(in crate::cli) fn is_plain_argument(at: ArgPosition<'_>, text: &str) -> bool {
    if is_flag(text) {
        return true;
    }
    if let Some((flag, value)) = text.split_once('=').filter(|(flag, _)| is_flag(flag)) {
        let zone = flag.ends_with("timezone") && is_words(value, "/_-");
        return is_plain(flag, value) || zone && !is_named(flag);
    }
    match at {
        ArgPosition::Package => is_package(without_extras(text)),
        ArgPosition::Executable => is_value(text),
        ArgPosition::Image => is_image(text),
        ArgPosition::Variable => match text.split_once('=') {
            Some((name, value)) => is_variable(name) && is_plain(name, value),
            None => is_variable(text),
        },
        ArgPosition::Mount => is_mount(text),
        ArgPosition::Numbers => is_numbers(text),
        ArgPosition::Switch => is_switch(text),
        // The argument is the value of a flag.
        ArgPosition::After(flag) if flag.starts_with('-') && !ALONE.contains(&flag) => {
            is_flag(flag) && is_plain(flag, text)
        }
        ArgPosition::After(_) | ArgPosition::First => is_value(text),
    }
}

/// A Python package without its extras, `name[extra]`.
fn without_extras(text: &str) -> &str {
    let (name, extras) = text.split_once('[').unwrap_or((text, "]"));
    let odd = |c: char| !(c.is_ascii_lowercase() || c == ',' || c == '-');
    match extras.strip_suffix(']') {
        Some(extras) if !extras.contains(odd) && extras.len() <= 2 * WORD => name,
        Some(_) | None => text,
    }
}

/// Whether the name of a variable, a header or a tool can be shown: words, small numbers and short abbreviations,
/// separated by `_`, `-`, `.`, `/` or capitals.
pub(super) fn is_plain_name(name: &str) -> bool {
    let words = words(name);
    let short = |word: &str| {
        let ascii = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let one_case = !word.bytes().any(|byte| byte.is_ascii_lowercase())
            || !word.bytes().any(|byte| byte.is_ascii_uppercase());
        ascii && one_case && word.len() <= SHORT
    };
    // A name without letters is a number, and could be a code.
    let named = name.contains(|c: char| c.is_ascii_alphabetic());
    let plain = |word: &String| is_words(word, "") || short(word);
    LONG.contains(&name) || named && words.len() <= PARTS && words.iter().all(plain)
}

/// Splits a name into words: `read_file`, `readFile` and `URLOf` have two each.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        let Some(word) = words.last_mut() else { break };
        let mut before = word.chars().rev();
        let (last, other) = (before.next(), before.next());
        let is_upper = |c: Option<char>| c.is_some_and(|c| c.is_ascii_uppercase());
        if matches!(c, '_' | '-' | '.' | '/') {
            words.push(String::new());
        } else if c.is_ascii_uppercase() && last.is_some_and(|last| last.is_ascii_lowercase()) {
            words.push(c.into());
        } else if c.is_ascii_lowercase() && is_upper(last) && is_upper(other) {
            // The last capital begins the new word.
            let capital = word.pop();
            words.push(capital.into_iter().chain([c]).collect());
        } else {
            word.push(c);
        }
    }
    words
}

/// Whether the names of the variables that `text` refers to can be shown.
pub(super) fn has_plain_references(text: &str) -> bool {
    placeholders(text, &PlaceholderFolders::default()).1.iter().all(|name| is_plain_name(name))
}

/// Whether each part of a path can be shown, including the names in its placeholders.
fn has_plain_parts(path: &str) -> bool {
    let part = |part: &str| part.is_empty() || is_plain_name(part) || is_words(part, "-_.+");
    without_placeholders(path).split('/').all(part) && has_plain_references(path)
}

/// Whether the working folder of a program can be copied: plain words below an ordinary folder, below a placeholder, or
/// relative.
pub(super) fn is_plain_folder(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let root = path.strip_prefix('/').and_then(|rest| rest.split('/').next());
    root.is_none_or(|root| ROOTS.contains(&root)) && has_plain_parts(path)
}

/// Whether a command can be copied: the name or path of a program in plain words.
pub(super) fn is_plain_command(text: &str) -> bool {
    let bare = text.split_at_checked(2).filter(|(drive, _)| drive.ends_with(':'));
    let bare = bare.map_or(text, |(_, rest)| rest);
    // Folders may have several words, and short names of old Windows programs a number.
    let folder = |part: &str| match part.split_once('~') {
        Some((part, number)) => part.to_owned() + number,
        None => part.to_owned(),
    };
    let words: Vec<String> = bare.split(['/', '\\', ' ']).map(folder).collect();
    has_plain_parts(&words.join("/"))
}

/// Whether a command is only a program, without arguments.
pub(super) fn is_command(text: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "/._-+${}".contains(c));
    !text.is_empty() && !text.contains(odd)
}

/// Whether a command is a path with blanks or backslashes, and nothing else: `/Applications/My App.app/run`. This
/// counts only where the arguments stand apart.
pub(super) fn is_spaced_path(text: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "/\\._-+~:() ${}".contains(c));
    let mut start = text.chars();
    let drive = (start.next(), start.next());
    let is_drive = matches!(drive, (Some(letter), Some(':')) if letter.is_ascii_alphabetic());
    let colons = text.matches(':').count();
    let path = is_drive && colons == 1 || text.starts_with(['/', '\\']) && colons == 0;
    path && !text.contains(odd) && !text.contains(" -") && !text.contains(" /")
}

/// Folders that the placeholders in a client's file refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceholderFolders {
    /// The folder that the editor has open, if it follows from the path of the file.
    pub(super) workspace: Option<String>,
    /// The variables of the inputs that a client asks its user for, by their ids.
    pub(super) inputs: BTreeMap<String, String>,
}

impl PlaceholderFolders {
    /// The value of an editor's placeholder, and the variable in it; `None` for other placeholders.
    fn of(&self, inner: &str) -> Option<(String, Option<&'static str>)> {
        let workspace = self.workspace.as_deref();
        match inner {
            "userHome" => Some(("${HOME}".to_owned(), Some("HOME"))),
            "pathSeparator" | "/" => Some(("/".to_owned(), None)),
            "workspaceFolder" | "workspaceRoot" => {
                workspace.map(|folder| (folder.replace("${", "$${"), None))
            }
            "workspaceFolderBasename" => {
                let name = workspace.and_then(|folder| folder.rsplit('/').next());
                name.map(|name| (name.replace("${", "$${"), None))
            }
            _ => None,
        }
    }
}

/// Replaces `~/` at the beginning of a path by `${HOME}/`.
pub(super) fn at_home(text: &str) -> String {
    match text.strip_prefix("~/") {
        Some(rest) => format!("${{HOME}}/{rest}"),
        None => text.to_owned(),
    }
}

/// Rewrites `${VAR}`, `${env:VAR}` and `${input:id}` as `${VAR}` of the gateway, replaces placeholders of editors by
/// their values, and returns the variables. A default value is kept if it is plain.
pub(super) fn placeholders(text: &str, places: &PlaceholderFolders) -> (String, Vec<String>) {
    let mut variables = Vec::new();
    let out = replaced(text, |inner| {
        if let Some((place, variable)) = places.of(inner) {
            variables.extend(variable.map(str::to_owned));
            return place;
        }
        let (name, usual) = inner.split_once(":-").map_or((inner, None), |(n, u)| (n, Some(u)));
        let input = name.strip_prefix("input:").and_then(|id| places.inputs.get(id)).cloned();
        let name = input.unwrap_or_else(|| variable_name(bare_reference(name)));
        let usual = usual.filter(|usual| usual.is_empty() || is_imported(&name, usual));
        let usual = usual.map(|usual| format!(":-{usual}")).unwrap_or_default();
        let placeholder = format!("${{{name}{usual}}}");
        variables.push(name);
        placeholder
    });
    (out, variables)
}

/// The name in a placeholder: of `env:NAME`, `input:ID` and `NAME`.
pub(super) fn bare_reference(inner: &str) -> &str {
    inner.trim_start_matches("env:").trim_start_matches("input:")
}

/// `text` without its placeholders.
pub(in crate::cli) fn without_placeholders(text: &str) -> String {
    replaced(text, |_| String::new())
}

/// Converts a text to a valid name of a variable.
pub(super) fn variable_name(text: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let named = !text.bytes().any(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    let name: String = if named { text.to_owned() } else { text.chars().map(upper).collect() };
    let odd = name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty();
    if odd { format!("V{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::{
        ArgPosition, PlaceholderFolders, is_imported, is_imported_argument, is_plain,
        is_plain_argument, is_plain_around, is_plain_command, is_plain_folder, is_plain_name,
        is_plain_url, placeholders,
    };

    #[test]
    fn values_that_anybody_may_know_are_told_from_others() {
        for (name, value, plain) in [
            ("LEVEL", "info", true),
            ("PORT", "8080", true),
            ("ROOT", "/srv/files/v2", true),
            ("API", "https://api.example.com:8443/v1/mcp-server", true),
            ("TZ", "UTC", true),
            ("TZ", "America/Argentina/Buenos_Aires", true),
            ("AWS_REGION", "eu-west-1", true),
            ("REGION", "us-gov-east-1", true),
            ("LOCATION", "europe-west4", true),
            ("MODE", "read-only", true),
            ("LOG_LEVEL", "WARNING", true),
            ("GITHUB_REPOSITORY", "acme/web", true),
            ("ACCESS_KEY", "eu-west-1", false),
            ("TOKEN_ZONE", "UTC", false),
            ("MODE_SECRET", "read-only", false),
            ("AUTH_REPO", "acme/web", false),
            ("P", "read-only", false),
            ("REGION", "eu-west-1x9Kq2", false),
            ("REGION", "hunter-west-1", false),
            ("TZ", "Europe/x9Kq2LmPz0Rt", false),
            ("TZ", "hunter/Berlin", false),
            ("REPO", "acme/x9Kq2LmPz0Rt", false),
            ("REPO", "hunter", false),
            ("REPO", "acme/web/hunter", false),
            ("REPO", "/web", false),
            ("REPO", "abcdefghijklmnop/web", false),
            ("NAME", "acme/web", false),
            ("API_KEY", "info", false),
            ("GITHUB_PAT", "info", false),
            ("PIN", "1234", false),
            ("DB_PASSWORD", "123456", false),
            ("NUMBER", "123456", false),
            ("NAME", "hunter", false),
            ("FILE_PATH", "/srv/files/memory.jsonl", true),
            ("MY_PAT_FILE", "info", false),
            ("DB", ":memory:", true),
            ("SLASH", "/9j4AAQSkZJRg", false),
            ("SLASH", "/hunter2", false),
            ("SLASH", "/secretword", false),
            ("DATABASE_URL", "https://host/hunter2", false),
            (
                "HOOK",
                "https://hooks.example.com/services/T01ABCDEF/B02/x8Fq2LmPz0RtYw4nKc7VbJdE",
                false,
            ),
            ("URL", "https://example.com/mcp?code=x", false),
            ("URL", "https://u:p@example.com/mcp", false),
            ("URL", "https://example.com/5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69/mcp", false),
            ("URL", "https://example.com/abcdEFGHijklMNOPqrst/mcp", false),
            ("URL", "postgres://db/x", false),
            ("URL", "http://127.0.0.1:8080/mcp", true),
            ("URL", "http://[::1]:8080/mcp", true),
            ("URL", "https://mcp-2.eu-west-1.k8s.example.com/mcp", true),
            ("URL", "https://api.githubcopilot.com/mcp/", true),
            ("URL", "https://k3j4h5g6f7d8s9a0.example.com/mcp", false),
            ("URL", "https://5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69.example.com/mcp", false),
            ("URL", "https://abcdefghijklmnopqrst.example.com/mcp", false),
            ("URL", "https://example.com:12345678901234/mcp", false),
            ("URL", "https://example.com:/mcp", false),
            ("URL", "https://[hunter2]/mcp", false),
            ("URL", "https://[::1]hunter2/mcp", false),
            ("URL", "https://exa\u{301}mple.com/mcp", false),
            ("URL", "https://exam ple.com/mcp", false),
            ("URL", "https://exam\"ple.com/mcp", false),
            ("URL", "https://exam\u{7}ple.com/mcp", false),
            ("URL", "https:///mcp", false),
        ] {
            assert_eq!(is_plain(name, value), plain, "{name}={value}");
        }
        assert!(!is_plain_url("https://example.com/mcp#x9"));
    }

    #[test]
    fn more_is_taken_along_from_a_client_where_no_secret_belongs() {
        for (name, value, taken) in [
            ("GITHUB_TOOLSETS", "repos,issues", true),
            ("--context", "ide-assistant", true),
            ("--viewport", "1280x720", true),
            ("MEMORY_FILE_PATH", "/home/me/memory.jsonl", true),
            ("LANGUAGE", "pt-BR", true),
            ("LANG", "en_US.UTF-8", true),
            ("READ_ONLY", "True", true),
            ("TIMEOUT", "300000", true),
            ("HOST", "127.0.0.1", true),
            ("RATIO", "0.75", true),
            ("API_KEY", "repos", false),
            ("CONNECTION", "default", false),
            ("GITHUB_PAT", "repos", false),
            ("DSN", "local", false),
            ("SEED_PHRASE", "one,two,three", false),
            ("NUMBER", "300000", false),
            ("NAME", "hunter2", false),
            ("NAME", "Hunter", false),
            ("NAME", "xkcdqwrtz", false),
            ("NAME", "abcdefghijklmnop", false),
            ("NAME", "correct-horse-battery-staple", false),
            ("NAME", "aB3dE5fG7hI9", false),
            ("NAME", "a b", false),
            ("NAME", "repos,,issues", false),
            ("URL", "https://example.com/mcp?code=x", false),
            ("-p", "firefox", false),
        ] {
            assert_eq!(is_imported(name, value), taken, "{name}={value}");
        }
    }

    #[test]
    fn more_arguments_are_taken_along_from_a_client() {
        for (at, text, taken) in [
            (ArgPosition::Executable, "serena", true),
            (ArgPosition::Executable, "markitdown-mcp", true),
            (ArgPosition::Package, "git+https://github.com/oraios/serena", true),
            (ArgPosition::Package, "git+https://github.com/oraios/serena@v1.2.3", true),
            (ArgPosition::Package, "--from=markitdown-mcp", true),
            (ArgPosition::After("serena"), "start-mcp-server", true),
            (ArgPosition::After("run"), "my-server", true),
            (ArgPosition::After("--context"), "ide-assistant", true),
            (ArgPosition::After("--client-type"), "persistent", true),
            (ArgPosition::First, "--viewport=1280x720", true),
            (ArgPosition::First, "--readOnly", true),
            (ArgPosition::After("--db-path"), ":memory:", true),
            (ArgPosition::Variable, "GITHUB_TOOLSETS=repos,issues", true),
            (ArgPosition::Variable, "GITHUB_TOKEN=repos", false),
            (ArgPosition::Executable, "ghp_0Zk3Vq8Lw5Xn2Rt7Yb4Hc9Jd6Fm1Gs0Pa2Qe", false),
            (ArgPosition::Package, "git+https://ana:hunter2@github.com/oraios/serena", false),
            (ArgPosition::Package, "git+https://github.com/a/b?token=x", false),
            (ArgPosition::After("--token"), "repos", false),
            (ArgPosition::After("--authMode"), "repos", false),
            (ArgPosition::Package, "git+https://github.com/Snowflake-Labs/mcp", true),
            (ArgPosition::Package, "npm:@acme/tickets@1.2.3", true),
            (ArgPosition::Mount, "server-data:/root", true),
            (ArgPosition::After("/srv/files"), "/another/allowed/directory", true),
            (ArgPosition::First, "--cluster_endpoint", true),
            (ArgPosition::After("--database_user"), "reader", true),
            (ArgPosition::First, "-debug", true),
            (ArgPosition::Numbers, "127.0.0.1:8085:8085", true),
            (ArgPosition::Switch, "/c", true),
            (ArgPosition::Package, "git+https://example.com/Snowflake-Labs/mcp", false),
            (ArgPosition::Package, "git+https://github.com/x9Kq2LmPz0RtYw4n/mcp", false),
            (ArgPosition::Mount, "hunter2:/root", false),
            (ArgPosition::After("--key"), "/another/allowed/directory", false),
            (ArgPosition::First, "/another/secretword", false),
            (ArgPosition::After("--database_password"), "reader", false),
            (ArgPosition::Numbers, "1234567890", false),
            (ArgPosition::Numbers, "ana:hunter", false),
            (ArgPosition::Switch, "/hunter2", false),
            (ArgPosition::First, "--hQzKdLpWmXaBc", false),
            (ArgPosition::First, "hunter", false),
            (ArgPosition::First, "-phunter", false),
            (ArgPosition::After("-p"), "hunter", false),
            (ArgPosition::After("run"), "hunter2pass", false),
            (ArgPosition::Mount, "repos", false),
        ] {
            assert_eq!(is_imported_argument(at, text), taken, "{at:?} {text}");
        }
    }

    #[test]
    fn arguments_that_anybody_may_know_are_told_from_others() {
        let first = ArgPosition::First;
        for (at, text, plain) in [
            (first, "-y", true),
            (ArgPosition::Package, "@modelcontextprotocol/server-filesystem@2026.8.31", true),
            (ArgPosition::Package, "mcp-server-fetch==2025.4.7", true),
            (ArgPosition::After("--api-key"), "--verbose", true),
            (first, "--api-key", true),
            (first, "/srv/files", true),
            (first, "dist/index.js", true),
            (first, "run", true),
            (first, "--port=8080", true),
            (ArgPosition::After("--port"), "8080", true),
            (ArgPosition::After("--local-timezone"), "UTC", true),
            (ArgPosition::After("--local-timezone"), "Europe/Berlin", true),
            (ArgPosition::After("--region"), "eu-west-1", true),
            (ArgPosition::After("--mode"), "read-only", true),
            (first, "--mode=read-only", true),
            (ArgPosition::After("--repo"), "acme/web", true),
            (ArgPosition::Variable, "TZ=UTC", true),
            (first, "read-only", false),
            (first, "acme/web", false),
            (ArgPosition::After("-p"), "local", false),
            (ArgPosition::After("--owner"), "acme/web", false),
            (ArgPosition::After("--token"), "eu-west-1", false),
            (ArgPosition::After("--auth-mode"), "read-only", false),
            (first, "--url=https://example.com/mcp", true),
            (ArgPosition::After("-y"), "https://example.com/mcp", true),
            (ArgPosition::Package, "ghp_0Zk3Vq8Lw5Xn2Rt7Yb4Hc9Jd6Fm1Gs0Pa2Qe", false),
            (ArgPosition::Package, "@21st-dev/magic@0.1.0", true),
            (ArgPosition::Package, "@e2b/mcp-server", true),
            (ArgPosition::Package, "@upstash/context7-mcp", true),
            (ArgPosition::Package, "@k3j4h5g6f7d8/mcp@1.0.0", false),
            (ArgPosition::Package, "@acme-x9kq2lmpz0rt/mcp", false),
            (ArgPosition::Package, "@\u{e4}cme/mcp", false),
            (ArgPosition::Package, "@ac me/mcp", false),
            (ArgPosition::Package, "@/mcp", false),
            (ArgPosition::Image, "ghcr.io/acme/server:1.2.3", true),
            (ArgPosition::Image, "localhost:5000/mcp:latest", true),
            (ArgPosition::Image, "mcp/fetch", true),
            (ArgPosition::Image, "k3j4h5g6f7d8.example.com/acme/server:1.2.3", false),
        ]
        .into_iter()
        .chain(
            // Each of these could be a secret.
            [
                "hunter2",
                "--header=X-Anything: y",
                "Authorization: Bearer x",
                "--token=x",
                "TOKEN=x npx server",
                "Server=db;Pwd=hunter2",
                "GITHUB_PAT=hunter2",
                "--token hunter2x",
                "Bearer hunter4",
                "Basic dXNlcjpwYXNz",
                "--token=",
                "-phunter22",
                "-uroot:hunter2",
                "--pw=hunter2",
                "user:hunter2@host",
                "amqp:guest:hunter2",
                "--env=NPM_PW:hunter2",
                "--set=db.password=hunter2",
                "AbCdEfGhIjKlMnOpQrStUvWxYz",
                "/T01ABC/B02DEF/abcDefGhiJklMnoPqr",
                "--url=https://example.com/mcp?k=v",
                "postgres://u:p@db/x",
                "sk-live-4f9b2c7d1e8a6053b7c2",
                "5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69",
                "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY/x",
            ]
            .map(|text| (first, text, false)),
        )
        .chain(
            ["--api-key", "--token", "-k", "-e", "--env", "-H", "--token="]
                .map(|flag| (ArgPosition::After(flag), "hunter2", false)),
        ) {
            assert_eq!(is_plain_argument(at, text), plain, "{at:?} {text}");
        }
    }

    #[test]
    fn names_that_anybody_may_know_are_told_from_others() {
        for name in [
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "AWS_S3_BUCKET",
            "N8N_API_KEY",
            "E2B_API_KEY",
            "OAUTH2_TOKEN",
            "PATH",
            "X-Api-Key",
            "CF-Access-Client-Id",
            "read_file",
            "listProjects",
            "browser.navigate",
            "getURLOf",
            "PYTHONUNBUFFERED",
            "sequentialthinking",
        ] {
            assert!(is_plain_name(name), "{name}");
        }
        for name in [
            "",
            "1234567890",
            "12345",
            "hunter2pass",
            "X-hunter2pass",
            "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
            "AKIAQYLPMN5HHHFPZAM2",
            "s3cr3t-Value-99",
            "Tr0ub4dor&3",
            "correct horse battery",
            "abcdefghijklmnop",
            "AbCdEfGhIjKlMnOpQrStUvWxYz",
            "sk-live-4f9b2c7d1e8a6053b7c2",
            "5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69",
        ] {
            assert!(!is_plain_name(name), "{name}");
        }
        for command in [
            "npx",
            "uv",
            "mcp-server-git",
            "/opt/server",
            "/home/ana/.nvm/versions/node/v20.11.1/bin/node",
            "/usr/lib/x86_64-linux-gnu/tool",
            "python3.12",
            "./bin/run.sh",
            "../run",
            "${HOME}/bin/x",
            "${workspaceFolder}/server/small",
        ] {
            assert!(is_plain_command(command), "{command}");
        }
        for command in ["hunter2pass", "/opt/AKIAQYLPMN5HHHFPZAM2", "${AKIAQYLPMN5HHHFPZAM2}/x"] {
            assert!(!is_plain_command(command), "{command}");
        }
        for folder in [
            "/srv/files/",
            "/home/ana/work",
            "/Users/ana/MyProject",
            "/",
            ".",
            "./tools",
            "../server/data",
            "${workspaceFolder}",
            "${workspaceFolder}/server",
            "${HOME}/work",
        ] {
            assert!(is_plain_folder(folder), "{folder}");
        }
        for folder in [
            "/srv/hunter2pass",
            "/secretword",
            "hunter2pass",
            "${HOME}/hunter2pass",
            "${workspaceFolder}/hunter${X}2pass",
            "${hunter2pass}/work",
        ] {
            assert!(!is_plain_folder(folder), "{folder}");
        }
    }

    #[test]
    fn placeholders_of_every_client_become_ours() {
        let nowhere = PlaceholderFolders::default();
        let (text, variables) =
            placeholders("a ${X} ${env:Y} ${input:my-key} ${Z:-info} ${", &nowhere);
        assert_eq!(text, "a ${X} ${Y} ${MY_KEY} ${Z:-info} ${");
        assert_eq!(variables, ["X", "Y", "MY_KEY", "Z"]);
        let (text, _) = placeholders("${X_KEY:-info} ${Y:-hunter} ${1A}", &nowhere);
        assert_eq!(text, "${X_KEY} ${Y} ${V1A}");
        let there = PlaceholderFolders {
            workspace: Some("/srv/projects".to_owned()),
            ..PlaceholderFolders::default()
        };
        let (text, variables) = placeholders("${workspaceFolder}${/}src ${userHome}", &there);
        assert_eq!((&*text, &*variables), ("/srv/projects/src ${HOME}", &["HOME".to_owned()][..]));
    }

    #[test]
    fn what_a_container_is_started_with_is_told_from_secrets() {
        for (at, text, plain) in [
            (ArgPosition::Image, "mcp/fetch", true),
            (ArgPosition::Image, "ghcr.io/github/github-mcp-server:v0.20.1", true),
            (ArgPosition::Image, "registry.example.com:5000/team/tool:latest", true),
            (ArgPosition::Image, "ghp_0Zk3Vq8Lw5Xn2Rt7Yb4Hc9Jd6Fm1Gs0Pa2Qe", false),
            (ArgPosition::Image, "u:sk-live-4f9b2c7d1e8a6053b7c2", false),
            (ArgPosition::Variable, "GITHUB_PERSONAL_ACCESS_TOKEN", true),
            (ArgPosition::Variable, "GITHUB_TOKEN=hunter2", false),
            (ArgPosition::Variable, "LEVEL=debug", true),
            (ArgPosition::Variable, "hunter2", false),
            (ArgPosition::Mount, "/home/ana/work:/data:ro", true),
            (ArgPosition::Mount, "type=bind,src=/Users/ana/Desktop,dst=/projects/Desktop", true),
            (ArgPosition::Mount, "type=bind,password=hunter2", false),
            (ArgPosition::Mount, "hunter2:/data", false),
            (ArgPosition::Package, "mcp[cli]", true),
            (ArgPosition::First, "--local-timezone=America/New_York", true),
        ] {
            assert_eq!(is_plain_argument(at, text), plain, "{at:?} {text}");
        }
        assert!(is_plain_around("ROOT", "/src") && is_plain_around("", "--root=/src"));
        assert!(!is_plain_around("TOKEN", "/src") && !is_plain_around("", "--token=/src"));
        assert!(!is_plain_around("ROOT", "hunter2"));
    }
}
