//! Texts of configurations: where in them something stands, and how what is wrong there is told.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// All files of a configuration, the first one first, and folders in which more of them may turn up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Vec<Text>, Vec<PathBuf>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    path: PathBuf,
    text: String,
    /// It is part of the program, not a file.
    is_inside: bool,
}

/// A piece of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// None: it is not about a piece of text.
    pub(crate) at: Option<Place>,
    pub(crate) said: String,
    /// Another piece of text that has to do with it, and what.
    pub(crate) also: Option<(Place, &'static str)>,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Default)]
pub(crate) struct Troubles {
    all: Vec<Trouble>,
    /// What came from variables and files: it is told nobody.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Troubles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Troubles").field(&self.all).finish()
    }
}

impl Texts {
    pub(crate) fn add(&mut self, path: PathBuf, text: String) -> usize {
        self.0.push(Text { path, text, is_inside: false });
        self.0.len() - 1
    }

    /// A text that the program brings along. It is there once, however often it is used.
    pub(crate) fn add_inside(&mut self, name: &str, text: &str) -> usize {
        let path = PathBuf::from(format!("(pack {name})"));
        if let Some(known) = self.0.iter().position(|text| text.is_inside && text.path == path) {
            return known;
        }
        self.0.push(Text { path, text: text.to_owned(), is_inside: true });
        self.0.len() - 1
    }

    pub(crate) fn is_inside(&self, file: usize) -> bool {
        self.0.get(file).is_some_and(|text| text.is_inside)
    }

    /// The files, without what the program brings along.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.0.iter().filter(|text| !text.is_inside).map(|text| text.path.clone()).collect()
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|text| text.path == path)
    }

    /// A folder whose files are included.
    pub(crate) fn add_folder(&mut self, folder: PathBuf) {
        self.1.push(folder);
    }

    /// All folders that have to do with it.
    pub(crate) fn folders(&self) -> BTreeSet<PathBuf> {
        let files = (0..self.0.len()).filter(|file| !self.is_inside(*file));
        files.map(|file| self.folder(file).to_owned()).chain(self.1.iter().cloned()).collect()
    }

    pub(crate) fn text(&self, file: usize) -> &str {
        self.0.get(file).map_or("", |text| &text.text)
    }

    /// As it is written, which may be a name for what it means.
    pub(crate) fn written(&self, at: Place) -> &str {
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
    pub(crate) fn locate(&self, at: Place) -> String {
        let (line, column, _) = self.line(at);
        let path = self.0.get(at.file).map(|text| text.path.display().to_string()).unwrap_or_default();
        format!("{path}:{line}:{column}")
    }

    fn line(&self, at: Place) -> (usize, usize, &str) {
        let text = self.text(at.file);
        let start = (0..=at.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..start];
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[begin..].lines().next().unwrap_or_default();
        (before.matches('\n').count() + 1, text[begin..start].chars().count() + 1, line)
    }

    /// Everything that is wrong, with the lines where it is, in the order of files and lines.
    pub(crate) fn tell(&self, troubles: &Troubles) -> String {
        let mut all: Vec<&Trouble> = troubles.all.iter().collect();
        all.sort_by_key(|trouble| trouble.at.map_or((0, 0), |at| (at.file, at.start)));
        let mut told = String::new();
        for trouble in all {
            // Writing to a text cannot fail.
            let said = troubles.masked(&trouble.said);
            match trouble.at {
                None => drop(writeln!(told, "{said}")),
                Some(at) => {
                    let _ = writeln!(told, "{}: {said}", self.locate(at));
                    told.push_str(&self.show(at));
                }
            }
            if let Some((at, what)) = trouble.also {
                let _ = writeln!(told, "  {}: {what}", self.locate(at));
            }
        }
        told
    }

    /// The same without the lines: they may hold secrets, and a log has other readers than the file.
    pub(crate) fn tell_briefly(&self, troubles: &Troubles) -> String {
        let mut all: Vec<&Trouble> = troubles.all.iter().collect();
        all.sort_by_key(|trouble| trouble.at.map_or((0, 0), |at| (at.file, at.start)));
        let told = all.iter().map(|trouble| {
            let said = troubles.masked(&trouble.said);
            trouble.at.map_or_else(|| said.clone(), |at| format!("{}: {said}", self.locate(at)))
        });
        told.collect::<Vec<_>>().join("\n")
    }

    /// The line, with a mark below what is meant.
    fn show(&self, at: Place) -> String {
        let (number, column, line) = self.line(at);
        if line.is_empty() {
            return String::new();
        }
        let marked = self.written(at).lines().next().unwrap_or_default().chars().count().max(1);
        let room = line.chars().count().saturating_sub(column - 1).max(1);
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        // A line of a certificate or of a minified text is not worth a screen.
        let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).take(160).collect();
        let mark = if column <= 160 { "^".repeat(marked.min(room).min(161 - column)) } else { String::new() };
        format!("  {number} | {shown}\n  {margin} | {}{mark}\n", " ".repeat((column - 1).min(160)))
    }
}

impl Troubles {
    /// Whether something is said of this place already.
    pub(crate) fn knows(&self, at: Place) -> bool {
        self.all.iter().any(|trouble| trouble.at == Some(at))
    }

    pub(crate) fn say(&mut self, at: Place, said: impl Into<String>) {
        self.push(Trouble { at: Some(at), said: said.into(), also: None });
    }

    pub(crate) fn say_also(&mut self, at: Place, said: impl Into<String>, other: Place, what: &'static str) {
        self.push(Trouble { at: Some(at), said: said.into(), also: Some((other, what)) });
    }

    pub(crate) fn say_nowhere(&mut self, said: impl Into<String>) {
        self.push(Trouble { at: None, said: said.into(), also: None });
    }

    /// The same is not said twice of the same.
    fn push(&mut self, trouble: Trouble) {
        if !self.all.iter().any(|known| (known.at, &known.said) == (trouble.at, &trouble.said)) {
            self.all.push(trouble);
        }
    }

    /// Keeps this out of everything that is said.
    pub(crate) fn hide(&mut self, secret: &str) {
        if secret.len() >= SECRET_LENGTH {
            self.secrets.push(secret.to_owned());
            // What is longer goes first: it may have something shorter in it.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    fn masked(&self, said: &str) -> String {
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
const SECRET_LENGTH: usize = 6;

/// Why a file could not be read.
pub(crate) fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "it may not be read".into(),
        std::io::ErrorKind::InvalidData => "it is no text".into(),
        kind => kind.to_string(),
    }
}

/// The known word that was probably meant.
pub(crate) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let best = known.into_iter().map(|known| (distance(&word, &known.to_lowercase()), known)).min()?;
    (best.0 <= (word.chars().count().max(3)) / 3).then_some(best.1)
}

/// How many letters have to be changed, added, left out or swapped with their neighbor.
fn distance(one: &str, other: &str) -> usize {
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
            assert_eq!(meant(word, known), wanted, "{word}");
        }
    }

    #[test]
    fn secrets_are_hidden_and_short_words_are_not() {
        let mut troubles = Troubles::default();
        for secret in ["ti", "hunter2", "hunter2-and-more"] {
            troubles.hide(secret);
        }
        let said = troubles.masked("`descripton` is \"xhunter2\" or hunter2-and-more");
        assert_eq!(said, "`descripton` is \"x***\" or ***");
        assert_eq!(troubles.masked("no description of the title"), "no description of the title");
    }

    #[test]
    fn a_mark_stands_below_what_is_meant() {
        let mut texts = Texts::default();
        texts.add("a.toml".into(), "one = 1\nzwölf = \"é\"\n".into());
        let mut troubles = Troubles::default();
        troubles.say(Place { file: 0, start: 17, end: 21 }, "wrong");
        assert_eq!(texts.tell(&troubles), "a.toml:2:9: wrong\n  2 | zwölf = \"é\"\n    |         ^^^\n");
    }
}
