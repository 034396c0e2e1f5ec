//! Edits of texts.

/// Words with one that means the same.
const SYNONYMS: &[(&str, &str)] = &[
    ("get", "fetch"),
    ("gets", "fetches"),
    ("retrieve", "get"),
    ("retrieves", "gets"),
    ("fetch", "get"),
    ("list", "show"),
    ("lists", "shows"),
    ("create", "make"),
    ("creates", "makes"),
    ("delete", "remove"),
    ("deletes", "removes"),
    ("remove", "delete"),
    ("removes", "deletes"),
    ("update", "change"),
    ("updates", "changes"),
    ("search", "find"),
    ("searches", "finds"),
    ("find", "search for"),
    ("add", "insert"),
    ("adds", "inserts"),
    ("return", "give"),
    ("returns", "gives"),
    ("all", "every"),
    ("specific", "particular"),
    ("given", "specified"),
    ("specified", "given"),
    ("new", "fresh"),
    ("information", "details"),
    ("details", "information"),
    ("current", "present"),
    ("multiple", "several"),
    ("required", "needed"),
    ("display", "show"),
    ("start", "begin"),
    ("starts", "begins"),
    ("picture", "image"),
    ("image", "picture"),
    ("send", "deliver"),
    ("sends", "delivers"),
    ("check", "verify"),
    ("checks", "verifies"),
    ("available", "accessible"),
    ("using", "with"),
    ("entire", "whole"),
    ("modify", "change"),
    ("execute", "run"),
    ("run", "execute"),
    ("view", "see"),
    ("perform", "do"),
    ("allows", "lets"),
    ("optional", "not required"),
    ("via", "through"),
];
/// Words in two spellings.
const SPELLINGS: &[(&str, &str)] = &[
    ("color", "colour"),
    ("organization", "organisation"),
    ("organizations", "organisations"),
    ("analyze", "analyse"),
    ("analyzes", "analyses"),
    ("center", "centre"),
    ("behavior", "behaviour"),
    ("optimize", "optimise"),
    ("customize", "customise"),
    ("initialize", "initialise"),
    ("summarize", "summarise"),
    ("catalog", "catalogue"),
    ("canceled", "cancelled"),
    ("license", "licence"),
    ("visualize", "visualise"),
    ("authorize", "authorise"),
    ("favorite", "favourite"),
    ("normalize", "normalise"),
    ("recognize", "recognise"),
];
/// Words that are written shorter.
const SHORT: &[(&str, &str)] = &[
    ("information", "info"),
    ("identifier", "ID"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("number", "no."),
    ("parameters", "params"),
    ("configuration", "config"),
    ("repository", "repo"),
    ("for example", "e.g."),
    ("e.g.", "for example"),
    ("i.e.", "that is"),
    ("application", "app"),
    ("documentation", "docs"),
    ("directory", "dir"),
    ("specification", "spec"),
    ("id", "identifier"),
];
/// Units.
const UNITS: &[(&str, &str)] = &[
    ("seconds", "s"),
    ("milliseconds", "ms"),
    ("ms", "milliseconds"),
    ("minutes", "min"),
    ("hours", "h"),
    ("megabytes", "MB"),
    ("mb", "megabytes"),
    ("kb", "kilobytes"),
    ("bytes", "B"),
    ("percent", "%"),
    ("meters", "m"),
    ("kilometers", "km"),
    ("pixels", "px"),
    ("px", "pixels"),
    ("days", "d"),
    ("degrees", "°"),
    ("celsius", "°C"),
    ("km", "kilometers"),
    ("gb", "gigabytes"),
];
/// Words of another language.
const SPANISH: &[(&str, &str)] = &[
    ("get", "obtener"),
    ("gets", "obtiene"),
    ("retrieve", "recuperar"),
    ("retrieves", "recupera"),
    ("fetch", "traer"),
    ("list", "listar"),
    ("lists", "enumera"),
    ("create", "crear"),
    ("creates", "crea"),
    ("delete", "borrar"),
    ("update", "actualizar"),
    ("search", "buscar"),
    ("find", "encontrar"),
    ("add", "agregar"),
    ("send", "enviar"),
    ("return", "devolver"),
    ("returns", "devuelve"),
    ("all", "todos"),
    ("file", "archivo"),
    ("files", "archivos"),
    ("user", "usuario"),
    ("users", "usuarios"),
    ("message", "mensaje"),
    ("messages", "mensajes"),
    ("new", "nuevo"),
    ("the", "el"),
    ("a", "un"),
    ("an", "un"),
    ("of", "de"),
    ("for", "para"),
    ("with", "con"),
    ("and", "y"),
    ("or", "o"),
    ("by", "por"),
    ("from", "desde"),
    ("to", "a"),
    ("in", "en"),
    ("information", "información"),
    ("data", "datos"),
    ("project", "proyecto"),
    ("projects", "proyectos"),
    ("name", "nombre"),
    ("current", "actual"),
    ("image", "imagen"),
    ("images", "imágenes"),
    ("list of", "lista de"),
    ("details", "detalles"),
    ("specific", "específico"),
    ("time", "tiempo"),
    ("date", "fecha"),
    ("account", "cuenta"),
    ("task", "tarea"),
    ("tasks", "tareas"),
    ("issue", "incidencia"),
    ("issues", "incidencias"),
    ("page", "página"),
    ("text", "texto"),
    ("query", "consulta"),
    ("search for", "buscar"),
    ("table", "tabla"),
    ("database", "base de datos"),
    ("status", "estado"),
    ("results", "resultados"),
    ("based", "basado"),
    ("on", "sobre"),
    ("using", "usando"),
    ("given", "dado"),
    ("set", "fijar"),
    ("check", "comprobar"),
    ("run", "ejecutar"),
    ("start", "iniciar"),
    ("stop", "detener"),
    ("available", "disponible"),
    ("document", "documento"),
    ("documents", "documentos"),
    ("report", "informe"),
    ("price", "precio"),
    ("order", "pedido"),
    ("market", "mercado"),
    ("device", "dispositivo"),
    ("folder", "carpeta"),
    ("team", "equipo"),
    ("tool", "herramienta"),
    ("use", "usar"),
    ("this", "esta"),
    ("is", "es"),
    ("it", "lo"),
    ("that", "que"),
    ("id", "identificador"),
    ("existing", "existente"),
    ("content", "contenido"),
    ("event", "evento"),
    ("events", "eventos"),
    ("weather", "clima"),
    ("company", "empresa"),
    ("key", "clave"),
    ("value", "valor"),
    ("values", "valores"),
    ("single", "único"),
    ("multiple", "varios"),
    ("analyze", "analizar"),
    ("generate", "generar"),
    ("test", "prueba"),
    ("code", "código"),
    ("model", "modelo"),
    ("source", "fuente"),
    ("into", "dentro de"),
    ("open", "abrir"),
    ("close", "cerrar"),
    ("read", "leer"),
    ("write", "escribir"),
    ("about", "sobre"),
];
/// Words without content.
const VAGUE: &[&str] = &["thing", "stuff", "item", "something", "data"];
/// Words that limit what a tool does.
const LIMITS: &[&str] = &["not", "no", "never", "without", "only", "except", "unless", "cannot"];

/// Replaces each run of letters and digits.
fn each_word(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            out.push_str(&replace(&word).unwrap_or_else(|| word.clone()));
            word.clear();
        }
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

/// Replaces at most `most` words by a table, with the case of the first letter.
fn by_table(text: &str, table: &[(&str, &str)], most: usize) -> Option<String> {
    let mut count = 0;
    let edited = each_word(text, |word| {
        let lower = word.to_lowercase();
        let (_, other) = table.iter().find(|(own, _)| *own == lower).filter(|_| count < most)?;
        count += 1;
        let mut chars = other.chars();
        let first = chars.next()?;
        let is_upper = word.chars().next().is_some_and(char::is_uppercase);
        let first = if is_upper { first.to_uppercase().collect() } else { first.to_string() };
        Some(first + chars.as_str())
    });
    (count > 0).then_some(edited)
}

pub(crate) fn synonyms(text: &str) -> Option<String> {
    let words = text.split_whitespace().count();
    by_table(text, SYNONYMS, (words / 4).clamp(1, 4))
}

pub(crate) fn spelling(text: &str) -> Option<String> {
    by_table(text, SPELLINGS, 9)
}

pub(crate) fn abbreviations(text: &str) -> Option<String> {
    by_table(text, SHORT, 2)
}

pub(crate) fn units(text: &str) -> Option<String> {
    by_table(text, UNITS, 3)
}

/// Translates the words that the table has; `None` if that is less than half of them.
pub(crate) fn translation(text: &str) -> Option<String> {
    let first = text.split(['.', '\n']).next()?;
    let words = first.split_whitespace().count();
    let mut count = 0;
    let edited = each_word(first, |word| {
        let lower = word.to_lowercase();
        let (_, other) = SPANISH.iter().find(|(own, _)| *own == lower)?;
        count += 1;
        Some((*other).to_owned())
    });
    (words > 2 && count * 2 >= words).then_some(edited)
}

/// Replaces the words that carry the content.
pub(crate) fn vague_words(text: &str) -> Option<String> {
    let mut count = 0;
    let edited = each_word(text, |word| {
        let keeps = word.chars().count() < 4 || word.chars().all(|c| c.is_ascii_digit());
        (!keeps).then(|| {
            count += 1;
            VAGUE[count % VAGUE.len()].to_owned()
        })
    });
    (count > 1).then_some(edited)
}

/// Leaves out the words that limit.
pub(crate) fn without_limits(text: &str) -> Option<String> {
    let mut count = 0;
    let edited = each_word(text, |word| {
        LIMITS.contains(&word.to_lowercase().as_str()).then(|| {
            count += 1;
            String::new()
        })
    });
    (count > 0).then_some(edited)
}

/// The first third of the words.
pub(crate) fn truncated(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    (words.len() >= 6).then(|| words[..words.len() / 3].join(" "))
}

/// The text with a mistake: two letters of one or two words in the middle are the wrong way round.
pub(crate) fn mistyped(text: &str) -> Option<String> {
    let (mut seen, mut count) = (0, 0);
    let edited = each_word(text, |word| {
        let chars: Vec<char> = word.chars().collect();
        let is_plain = chars.len() >= 6 && chars.iter().all(char::is_ascii_lowercase);
        seen += usize::from(is_plain);
        if !is_plain || seen % 3 != 1 || count == 2 || chars[2] == chars[3] {
            return None;
        }
        count += 1;
        let mut chars = chars;
        chars.swap(2, 3);
        Some(chars.into_iter().collect())
    });
    (count > 0).then_some(edited)
}

/// Other marks between and behind the words.
pub(crate) fn punctuation(text: &str) -> Option<String> {
    let text = text.trim_end();
    let end = if text.ends_with('.') {
        text.trim_end_matches('.').to_owned()
    } else {
        format!("{text}.")
    };
    Some(end.replace(" - ", ": ").replace(';', ","))
}

/// Other blanks and line ends.
pub(crate) fn whitespace(text: &str) -> Option<String> {
    Some(format!("\n  {}\n", text.split(' ').collect::<Vec<_>>().join("  ").replace(". ", ".\n")))
}

/// Marks of Markdown.
pub(crate) fn formatting(text: &str) -> Option<String> {
    let (first, rest) = text.trim().split_once(' ')?;
    Some(format!("**{first}** {}", rest.replace("\n- ", "\n* ")))
}

/// Small letters at the beginning of sentences, or capital ones.
pub(crate) fn letter_case(text: &str) -> Option<String> {
    let mut chars = text.chars();
    let first = chars.next()?;
    let other: String = if first.is_uppercase() {
        first.to_lowercase().collect()
    } else {
        first.to_uppercase().collect()
    };
    Some(other + chars.as_str())
}

/// The sentences in another order.
pub(crate) fn sentence_order(text: &str) -> Option<String> {
    let (first, rest) = text.split_once(". ")?;
    (rest.len() > 10 && !rest.contains('\n'))
        .then(|| format!("{}. {first}.", rest.trim_end_matches('.')))
}

/// The first word in another grammatical form: "get" and "gets".
pub(crate) fn grammar(text: &str) -> Option<String> {
    let (first, rest) = text.split_once(' ')?;
    if first.len() < 3 || !first.chars().all(|c| c.is_ascii_alphabetic()) || first.ends_with("ss") {
        return None;
    }
    let other = match first.strip_suffix('s') {
        Some(bare) => bare.to_owned(),
        None if first.ends_with(['h', 'x', 'y', 'o']) => return None,
        None => format!("{first}s"),
    };
    Some(format!("{other} {rest}"))
}

/// The text with an example of a request in its own words.
pub(crate) fn with_example(text: &str) -> Option<String> {
    let said: Vec<&str> = text.split(['.', '\n']).next()?.split_whitespace().take(12).collect();
    let said = said.join(" ").to_lowercase();
    Some(format!(
        "{}. Example: \"{said} for the Berlin team, since Monday\".",
        text.trim_end_matches('.')
    ))
}

/// The first half of a text with the second half of another one.
pub(crate) fn mixed(text: &str, other: &str) -> Option<String> {
    let half = |text: &str| text.split_whitespace().count() / 2;
    let own: Vec<&str> = text.split_whitespace().take(half(text)).collect();
    let foreign: Vec<&str> = other.split_whitespace().skip(half(other)).take(60).collect();
    (own.len() > 3 && foreign.len() > 3).then(|| format!("{} {}", own.join(" "), foreign.join(" ")))
}
