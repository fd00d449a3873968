//! The files of a configuration, positions in them, and reports of problems.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// The files of a configuration. A file is identified by its index; the main file is the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFiles {
    files: Vec<ConfigFile>,
    /// Folders in which new files may match a pattern of `include`.
    included_folders: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigFile {
    path: PathBuf,
    text: String,
    /// The text of a pack, which is part of the program.
    is_builtin: bool,
}

/// A range of bytes in a file of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A problem of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    /// `None` if the problem has no position.
    pub(crate) span: Option<Span>,
    pub(crate) message: String,
    /// A second position, and its description.
    pub(crate) related: Option<(Span, &'static str)>,
}

/// The problems of a configuration.
#[derive(Clone, Default)]
pub(crate) struct Diagnostics {
    all: Vec<Diagnostic>,
    /// Values from variables and files, which are masked in messages.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Diagnostics").field(&self.all).finish()
    }
}

impl ConfigFiles {
    pub(crate) fn add(&mut self, path: PathBuf, text: String) -> usize {
        self.files.push(ConfigFile { path, text, is_builtin: false });
        self.files.len() - 1
    }

    /// Adds the text of a pack, once.
    pub(crate) fn add_builtin(&mut self, name: &str, text: &str) -> usize {
        let path = PathBuf::from(format!("(pack {name})"));
        if let Some(known) = self.files.iter().position(|file| file.is_builtin && file.path == path) {
            return known;
        }
        self.files.push(ConfigFile { path, text: text.to_owned(), is_builtin: true });
        self.files.len() - 1
    }

    pub(crate) fn is_builtin(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| file.is_builtin)
    }

    /// The paths of the files, without packs.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().filter(|file| !file.is_builtin).map(|file| file.path.clone()).collect()
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path)
    }

    /// Adds a folder from which files are included.
    pub(crate) fn add_folder(&mut self, folder: PathBuf) {
        self.included_folders.push(folder);
    }

    /// The folders of all files, and those from which files are included.
    pub(crate) fn folders(&self) -> BTreeSet<PathBuf> {
        let files = (0..self.files.len()).filter(|file| !self.is_builtin(*file));
        files.map(|file| self.folder(file).to_owned()).chain(self.included_folders.iter().cloned()).collect()
    }

    pub(crate) fn text(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |file| &file.text)
    }

    /// The source text of a span, before variables are expanded.
    pub(crate) fn source_text(&self, at: Span) -> &str {
        self.text(at.file).get(at.start..at.end).unwrap_or_default()
    }

    /// The folder of a file, to which its paths are relative.
    pub(crate) fn folder(&self, file: usize) -> &Path {
        let path = self.files.get(file).map(|file| file.path.as_path());
        match path.and_then(Path::parent) {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Resolves a path that a file contains.
    pub(crate) fn resolve(&self, file: usize, path: &str) -> PathBuf {
        let joined = self.folder(file).join(path);
        let plain: PathBuf = joined.components().filter(|part| *part != Component::CurDir).collect();
        if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
    }

    /// The position of a span, as `shop.toml:12:3`. Lines and columns are counted from 1, columns in characters.
    pub(crate) fn locate(&self, at: Span) -> String {
        let (line, column, _) = self.line_at(at);
        let path = self.files.get(at.file).map(|file| file.path.display().to_string()).unwrap_or_default();
        format!("{path}:{line}:{column}")
    }

    fn line_at(&self, at: Span) -> (usize, usize, &str) {
        let text = self.text(at.file);
        let start = (0..=at.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..start];
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[begin..].lines().next().unwrap_or_default();
        (before.matches('\n').count() + 1, text[begin..start].chars().count() + 1, line)
    }

    /// Renders all problems with their source lines, sorted by position.
    pub(crate) fn render(&self, diagnostics: &Diagnostics) -> String {
        // Writing to a string cannot fail.
        let mut report = String::new();
        for problem in diagnostics.sorted() {
            let message = diagnostics.redact(&problem.message);
            match problem.span {
                None => drop(writeln!(report, "{message}")),
                Some(at) => {
                    let _ = writeln!(report, "{}: {message}", self.locate(at));
                    report.push_str(&self.render_line(at));
                }
            }
            if let Some((at, label)) = problem.related {
                let _ = writeln!(report, "  {}: {label}", self.locate(at));
            }
        }
        report
    }

    /// Renders all problems without source lines: they may contain secrets, and not everyone who reads the log may read
    /// the file.
    pub(crate) fn render_brief(&self, diagnostics: &Diagnostics) -> String {
        let sorted = diagnostics.sorted();
        let lines = sorted.iter().map(|problem| {
            let message = diagnostics.redact(&problem.message);
            problem.span.map_or_else(|| message.clone(), |at| format!("{}: {message}", self.locate(at)))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The source line of a span, with the span underlined.
    fn render_line(&self, at: Span) -> String {
        let (number, column, line) = self.line_at(at);
        if line.is_empty() {
            return String::new();
        }
        let marked = self.source_text(at).lines().next().unwrap_or_default().chars().count().max(1);
        let room = line.chars().count().saturating_sub(column - 1).max(1);
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        // Lines of certificates or minified texts are cut.
        let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).take(160).collect();
        let mark = if column <= 160 { "^".repeat(marked.min(room).min(161 - column)) } else { String::new() };
        format!("  {number} | {shown}\n  {margin} | {}{mark}\n", " ".repeat((column - 1).min(160)))
    }
}

impl Diagnostics {
    fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.all.iter().collect();
        sorted.sort_by_key(|problem| problem.span.map_or((0, 0), |span| (span.file, span.start)));
        sorted
    }

    /// Whether a problem with exactly this span has been reported.
    pub(crate) fn has_span(&self, at: Span) -> bool {
        self.all.iter().any(|problem| problem.span == Some(at))
    }

    pub(crate) fn report(&mut self, at: Span, message: impl Into<String>) {
        self.push(Diagnostic { span: Some(at), message: message.into(), related: None });
    }

    pub(crate) fn report_with_related(
        &mut self,
        at: Span,
        message: impl Into<String>,
        related: Span,
        label: &'static str,
    ) {
        self.push(Diagnostic { span: Some(at), message: message.into(), related: Some((related, label)) });
    }

    pub(crate) fn report_without_span(&mut self, message: impl Into<String>) {
        self.push(Diagnostic { span: None, message: message.into(), related: None });
    }

    /// Adds a problem, unless the same message has been reported for the same span.
    fn push(&mut self, problem: Diagnostic) {
        if !self.all.iter().any(|known| (known.span, &known.message) == (problem.span, &problem.message)) {
            self.all.push(problem);
        }
    }

    /// Masks this value in all messages.
    pub(crate) fn add_secret(&mut self, secret: &str) {
        if secret.len() >= MIN_SECRET_BYTES {
            self.secrets.push(secret.to_owned());
            // Longer values come first, because they may contain shorter ones.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    fn redact(&self, message: &str) -> String {
        self.secrets
            .iter()
            .fold(message.to_owned(), |message, secret| message.replace(secret.as_str(), "***"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Shorter values are not masked: they occur by chance in other words.
const MIN_SECRET_BYTES: usize = 6;

/// Why a file could not be read.
pub(crate) fn io_error_message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::InvalidData => "it is not valid UTF-8".into(),
        kind => kind.to_string(),
    }
}

/// The known word that is most similar, if it is similar enough to be a typo.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let best = known.into_iter().map(|known| (edit_distance(&word, &known.to_lowercase()), known)).min()?;
    (best.0 <= (word.chars().count().max(3)) / 3).then_some(best.1)
}

/// The number of characters to change, insert, delete or swap with their neighbor.
fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let same = rows[i][j] + usize::from(a != b);
            let mut least = same.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_suggested() {
        let known = ["description", "title", "args", "http", "sql"];
        for (word, wanted) in [
            ("descripton", Some("description")),
            ("Titel", Some("title")),
            ("htpp", Some("http")),
            ("arg", Some("args")),
            ("elephant", None),
            ("x", None),
        ] {
            assert_eq!(suggest(word, known), wanted, "{word}");
        }
    }

    #[test]
    fn secrets_are_masked_and_short_words_are_not() {
        let mut diagnostics = Diagnostics::default();
        for secret in ["ti", "hunter2", "hunter2-and-more"] {
            diagnostics.add_secret(secret);
        }
        let message = diagnostics.redact("`descripton` is \"xhunter2\" or hunter2-and-more");
        assert_eq!(message, "`descripton` is \"x***\" or ***");
        assert_eq!(diagnostics.redact("no description of the title"), "no description of the title");
    }

    #[test]
    fn the_span_is_underlined() {
        let mut texts = ConfigFiles::default();
        texts.add("a.toml".into(), "one = 1\nzwölf = \"é\"\n".into());
        let mut diagnostics = Diagnostics::default();
        diagnostics.report(Span { file: 0, start: 17, end: 21 }, "wrong");
        assert_eq!(texts.render(&diagnostics), "a.toml:2:9: wrong\n  2 | zwölf = \"é\"\n    |         ^^^\n");
    }
}
