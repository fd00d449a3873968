//! Texts of configurations: where in them something stands, and how what is wrong there is told.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// All files of a configuration, the first one first, and folders in which more of them may turn up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFiles(Vec<ConfigFile>, Vec<PathBuf>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigFile {
    path: PathBuf,
    text: String,
    /// It is part of the program, not a file.
    is_builtin: bool,
}

/// A piece of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    /// None: it is not about a piece of text.
    pub(crate) span: Option<Span>,
    pub(crate) message: String,
    /// Another piece of text that has to do with it, and what.
    pub(crate) related: Option<(Span, &'static str)>,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Default)]
pub(crate) struct Diagnostics {
    all: Vec<Diagnostic>,
    /// What came from variables and files: it is told nobody.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Diagnostics").field(&self.all).finish()
    }
}

impl ConfigFiles {
    pub(crate) fn add(&mut self, path: PathBuf, text: String) -> usize {
        self.0.push(ConfigFile { path, text, is_builtin: false });
        self.0.len() - 1
    }

    /// A text that the program brings along. It is there once, however often it is used.
    pub(crate) fn add_builtin(&mut self, name: &str, text: &str) -> usize {
        let path = PathBuf::from(format!("(pack {name})"));
        if let Some(known) = self.0.iter().position(|text| text.is_builtin && text.path == path) {
            return known;
        }
        self.0.push(ConfigFile { path, text: text.to_owned(), is_builtin: true });
        self.0.len() - 1
    }

    pub(crate) fn is_builtin(&self, file: usize) -> bool {
        self.0.get(file).is_some_and(|text| text.is_builtin)
    }

    /// The files, without what the program brings along.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().filter(|text| !text.is_builtin).map(|text| text.path.clone()).collect()
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|text| text.path == path)
    }

    /// A folder whose files are included.
    pub(crate) fn add_folder(&mut self, folder: PathBuf) {
        self.1.push(folder);
    }

    /// All folders that have to do with it.
    pub(crate) fn folders(&self) -> BTreeSet<PathBuf> {
        let files = (0..self.0.len()).filter(|file| !self.is_builtin(*file));
        files.map(|file| self.folder(file).to_owned()).chain(self.1.iter().cloned()).collect()
    }

    pub(crate) fn text(&self, file: usize) -> &str {
        self.0.get(file).map_or("", |text| &text.text)
    }

    /// As it is written, which may be a name for what it means.
    pub(crate) fn source_text(&self, at: Span) -> &str {
        self.text(at.file).get(at.start..at.end).unwrap_or_default()
    }

    /// Where relative paths of a file begin.
    pub(crate) fn folder(&self, file: usize) -> &Path {
        let path = self.0.get(file).map(|text| text.path.as_path());
        match path.and_then(Path::parent) {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// A path that a file names.
    pub(crate) fn resolve(&self, file: usize, path: &str) -> PathBuf {
        let joined = self.folder(file).join(path);
        let plain: PathBuf = joined.components().filter(|part| *part != Component::CurDir).collect();
        if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
    }

    /// `shop.toml:12:3`, counted from 1, columns in characters.
    pub(crate) fn locate(&self, at: Span) -> String {
        let (line, column, _) = self.line_at(at);
        let path = self.0.get(at.file).map(|text| text.path.display().to_string()).unwrap_or_default();
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

    /// Everything that is wrong, with the lines where it is, in the order of files and lines.
    pub(crate) fn render(&self, troubles: &Diagnostics) -> String {
        let mut all: Vec<&Diagnostic> = troubles.all.iter().collect();
        all.sort_by_key(|trouble| trouble.span.map_or((0, 0), |at| (at.file, at.start)));
        let mut told = String::new();
        for trouble in all {
            // Writing to a text cannot fail.
            let said = troubles.redact(&trouble.message);
            match trouble.span {
                None => drop(writeln!(told, "{said}")),
                Some(at) => {
                    let _ = writeln!(told, "{}: {said}", self.locate(at));
                    told.push_str(&self.render_line(at));
                }
            }
            if let Some((at, what)) = trouble.related {
                let _ = writeln!(told, "  {}: {what}", self.locate(at));
            }
        }
        told
    }

    /// The same without the lines: they may hold secrets, and a log has other readers than the file.
    pub(crate) fn render_brief(&self, troubles: &Diagnostics) -> String {
        let mut all: Vec<&Diagnostic> = troubles.all.iter().collect();
        all.sort_by_key(|trouble| trouble.span.map_or((0, 0), |at| (at.file, at.start)));
        let told = all.iter().map(|trouble| {
            let said = troubles.redact(&trouble.message);
            trouble.span.map_or_else(|| said.clone(), |at| format!("{}: {said}", self.locate(at)))
        });
        told.collect::<Vec<_>>().join("\n")
    }

    /// The line, with a mark below what is meant.
    fn render_line(&self, at: Span) -> String {
        let (number, column, line) = self.line_at(at);
        if line.is_empty() {
            return String::new();
        }
        let marked = self.source_text(at).lines().next().unwrap_or_default().chars().count().max(1);
        let room = line.chars().count().saturating_sub(column - 1).max(1);
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        // A line of a certificate or of a minified text is not worth a screen.
        let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).take(160).collect();
        let mark = if column <= 160 { "^".repeat(marked.min(room).min(161 - column)) } else { String::new() };
        format!("  {number} | {shown}\n  {margin} | {}{mark}\n", " ".repeat((column - 1).min(160)))
    }
}

impl Diagnostics {
    /// Whether something is said of this place already.
    pub(crate) fn has_span(&self, at: Span) -> bool {
        self.all.iter().any(|trouble| trouble.span == Some(at))
    }

    pub(crate) fn report(&mut self, at: Span, said: impl Into<String>) {
        self.push(Diagnostic { span: Some(at), message: said.into(), related: None });
    }

    pub(crate) fn report_with_related(
        &mut self,
        at: Span,
        said: impl Into<String>,
        other: Span,
        what: &'static str,
    ) {
        self.push(Diagnostic { span: Some(at), message: said.into(), related: Some((other, what)) });
    }

    pub(crate) fn report_without_span(&mut self, said: impl Into<String>) {
        self.push(Diagnostic { span: None, message: said.into(), related: None });
    }

    /// The same is not said twice of the same.
    fn push(&mut self, trouble: Diagnostic) {
        if !self.all.iter().any(|known| (known.span, &known.message) == (trouble.span, &trouble.message)) {
            self.all.push(trouble);
        }
    }

    /// Keeps this out of everything that is said.
    pub(crate) fn add_secret(&mut self, secret: &str) {
        if secret.len() >= MIN_SECRET_BYTES {
            self.secrets.push(secret.to_owned());
            // What is longer goes first: it may have something shorter in it.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    fn redact(&self, said: &str) -> String {
        self.secrets.iter().fold(said.to_owned(), |said, secret| said.replace(secret.as_str(), "***"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// What is shorter is a word that may be anywhere, and in the middle of others.
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

/// The known word that was probably meant.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let best = known.into_iter().map(|known| (edit_distance(&word, &known.to_lowercase()), known)).min()?;
    (best.0 <= (word.chars().count().max(3)) / 3).then_some(best.1)
}

/// How many letters have to be changed, added, left out or swapped with their neighbor.
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
    fn what_was_meant_is_near() {
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
    fn secrets_are_hidden_and_short_words_are_not() {
        let mut troubles = Diagnostics::default();
        for secret in ["ti", "hunter2", "hunter2-and-more"] {
            troubles.add_secret(secret);
        }
        let said = troubles.redact("`descripton` is \"xhunter2\" or hunter2-and-more");
        assert_eq!(said, "`descripton` is \"x***\" or ***");
        assert_eq!(troubles.redact("no description of the title"), "no description of the title");
    }

    #[test]
    fn a_mark_stands_below_what_is_meant() {
        let mut texts = ConfigFiles::default();
        texts.add("a.toml".into(), "one = 1\nzwölf = \"é\"\n".into());
        let mut troubles = Diagnostics::default();
        troubles.report(Span { file: 0, start: 17, end: 21 }, "wrong");
        assert_eq!(texts.render(&troubles), "a.toml:2:9: wrong\n  2 | zwölf = \"é\"\n    |         ^^^\n");
    }
}
