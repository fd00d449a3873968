//! A folder as resources: what is in it can be read, and nothing else, whatever names and links say.
//!
//! Names are judged before a file is opened, and the system is told to stay below the root while it opens it: there is no
//! moment between a check and its use.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolgate::HandlerError;
use toolgate::model::ResourceContents;

use super::Problem;

/// Folders in folders are looked into so deep.
const MAX_SCAN_DEPTH: usize = 64;

/// Which files, and what they are called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilesSpec {
    pub(crate) root: PathBuf,
    pub(crate) globs: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// With `{path}` for the path below the root.
    pub(crate) uri: String,
    pub(crate) hidden: bool,
    pub(crate) max_size: u64,
    pub(crate) max_files: usize,
    /// Of all of them; found out by their names unless said.
    pub(crate) mime: Option<String>,
    /// Only this file of the folder, at this very URI.
    pub(crate) single_file: Option<String>,
}

impl Default for FilesSpec {
    fn default() -> FilesSpec {
        FilesSpec {
            root: PathBuf::from("."),
            globs: vec!["**/*".into()],
            exclude: Vec::new(),
            uri: String::new(),
            hidden: false,
            max_size: 8 << 20,
            max_files: 10_000,
            mime: None,
            single_file: None,
        }
    }
}

impl FilesSpec {
    /// One file, at this URI.
    pub(crate) fn single(path: &Path, uri: String) -> FilesSpec {
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        FilesSpec {
            root: root.to_owned(),
            single_file: Some(name.unwrap_or_default()),
            uri,
            hidden: true,
            ..FilesSpec::default()
        }
    }
}

/// A folder that is served.
#[derive(Debug)]
pub(crate) struct Files {
    spec: FilesSpec,
    include: GlobSet,
    exclude: GlobSet,
    /// What was there when somebody last looked.
    last_listing: Mutex<Vec<ListedFile>>,
}

/// A file as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// Below the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) uri: String,
    pub(crate) mime: Option<String>,
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// The name of a file, as lists show it: what would hide or turn round a part of it is written out.
pub(crate) fn escape_display_name(path: &str) -> String {
    let is_odd = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut shown = String::with_capacity(path.len());
    for letter in path.chars() {
        if is_odd(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// What became of files since somebody last looked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileChanges {
    pub(crate) added: Vec<ListedFile>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<ListedFile>,
}

impl Files {
    pub(crate) fn new(spec: FilesSpec) -> Result<Files, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut say = |at: &str, said: String| problems.push(Problem { path: at.into(), message: said });
        let (wanted, unwanted) = (build_glob_set(&spec.globs), build_glob_set(&spec.exclude));
        for (at, set) in [("glob", &wanted), ("exclude", &unwanted)] {
            if let Err(said) = set {
                say(at, said.clone());
            }
        }
        match &spec.single_file {
            Some(name) if !spec.root.join(name).is_file() => {
                say("", format!("there is no file `{}`", spec.root.join(name).display()));
            }
            Some(_) => {}
            None => {
                if !spec.root.is_dir() {
                    say("root", format!("there is no folder `{}`", spec.root.display()));
                }
                let n_holes = spec.uri.matches("{path}").count() + spec.uri.matches("{+path}").count();
                if n_holes != 1 || spec.uri.matches('{').count() != 1 {
                    say("uri", "the URI of files has `{path}` in it, once: `docs:///{path}`".into());
                }
            }
        }
        match (wanted, unwanted, problems.is_empty()) {
            (Ok(wanted), Ok(unwanted), true) => {
                Ok(Files { spec, include: wanted, exclude: unwanted, last_listing: Mutex::default() })
            }
            _ => Err(problems),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.spec.root
    }

    /// The URI template of all files; none where there is one only.
    pub(crate) fn uri_template(&self) -> Option<String> {
        self.spec.single_file.is_none().then(|| self.spec.uri.replace("{path}", "{+path}"))
    }

    /// What is there, in the order of names. Blocks.
    pub(crate) fn scan(&self) -> Vec<ListedFile> {
        let mut found = Vec::new();
        match &self.spec.single_file {
            Some(name) => found.extend(self.describe_file(name)),
            None => self.scan_dir(&self.spec.root, "", 0, &mut found),
        }
        if found.len() > self.spec.max_files {
            let most = self.spec.max_files;
            tracing::warn!(root = %self.spec.root.display(), most, "more files than are listed; they can still be read");
            found.truncate(most);
        }
        found
    }

    /// What is there now, remembered for [`Files::difference`]. Blocks.
    pub(crate) fn refresh(&self) -> Vec<ListedFile> {
        let found = self.scan();
        self.last_listing.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
        found
    }

    /// What changed since somebody last looked. Blocks.
    pub(crate) fn take_changes(&self) -> FileChanges {
        let now = self.scan();
        let mut seen = self.last_listing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut difference = FileChanges::default();
        // Both are in the order of names, so one walk along both is enough.
        let (mut old, mut new) = (seen.iter().peekable(), now.iter().peekable());
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(before), Some(after)) if before.path == after.path => {
                    if before != after {
                        difference.changed.push((*after).clone());
                    }
                    old.next();
                    new.next();
                }
                (Some(before), after) if after.is_none_or(|after| before.path < after.path) => {
                    difference.removed.push(before.uri.clone());
                    old.next();
                }
                (_, Some(after)) => {
                    difference.added.push((*after).clone());
                    new.next();
                }
                (Some(_), None) => break,
            }
        }
        *seen = now;
        difference
    }

    fn scan_dir(&self, folder: &Path, below: &str, depth: usize, found: &mut Vec<ListedFile>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut names: Vec<(String, bool)> = entries
            .filter_map(Result::ok)
            // What is a link is not listed. It can be read, if it leads to something below the root.
            .filter_map(|entry| {
                let kind = entry.file_type().ok().filter(|kind| kind.is_dir() || kind.is_file())?;
                // A folder sorts as its files do: `a-b` before `a/b`.
                Some((entry.file_name().into_string().ok()?, kind.is_dir()))
            })
            .collect();
        let order =
            |(name, is_folder): &(String, bool)| if *is_folder { format!("{name}/") } else { name.clone() };
        names.sort_by_cached_key(order);
        for (name, is_folder) in names {
            if found.len() > self.spec.max_files {
                return;
            }
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            if is_folder && depth < MAX_SCAN_DEPTH && self.is_visible(&name) {
                self.scan_dir(&folder.join(&name), &path, depth + 1, found);
            } else if !is_folder && self.is_served(&path) {
                found.extend(self.describe_file(&path));
            }
        }
    }

    fn describe_file(&self, path: &str) -> Option<ListedFile> {
        let data = self.spec.root.join(path).metadata().ok()?;
        Some(ListedFile {
            path: path.to_owned(),
            uri: self.uri(path),
            mime: self.mime(path),
            size: data.len(),
            modified: data.modified().ok(),
        })
    }

    fn uri(&self, path: &str) -> String {
        if self.spec.single_file.is_some() {
            return self.spec.uri.clone();
        }
        let escaped = percent_encode_path(path);
        self.spec.uri.replace("{+path}", &escaped).replace("{path}", &escaped)
    }

    /// The path that a URI of these files means; none if it is not one of theirs.
    pub(crate) fn path_for_uri(&self, uri: &str) -> Option<String> {
        if let Some(only) = &self.spec.single_file {
            return (uri == self.spec.uri).then(|| only.clone());
        }
        let template = toolgate::uri_template::UriTemplate::parse(&self.uri_template()?).ok()?;
        template.match_uri(uri)?.into_iter().next().map(|(_, path)| path)
    }

    fn mime(&self, path: &str) -> Option<String> {
        self.spec.mime.clone().or_else(|| media_type(Path::new(path)).map(str::to_owned))
    }

    fn is_visible(&self, name: &str) -> bool {
        self.spec.hidden || !name.starts_with('.')
    }

    /// Whether this path may be asked for at all, by its name.
    fn is_served(&self, path: &str) -> bool {
        if let Some(only) = &self.spec.single_file {
            return path == only;
        }
        is_safe_path(path)
            && path.split('/').all(|part| self.is_visible(part))
            && self.include.is_match(path)
            && !self.exclude.is_match(path)
    }

    /// Reads a file; none if there is none of that name, whatever the reason. Cancel safe: yes, nothing is changed.
    pub(crate) async fn read(
        self: Arc<Files>,
        path: String,
    ) -> Result<Option<ResourceContents>, HandlerError> {
        if !self.is_served(&path) {
            return Ok(None);
        }
        let read = tokio::task::spawn_blocking(move || self.read_blocking(&path)).await;
        read.map_err(|_| HandlerError::new("the file could not be read"))?
    }

    fn read_blocking(&self, path: &str) -> Result<Option<ResourceContents>, HandlerError> {
        // A single file was named by whoever wrote the configuration; it may be a link.
        let opened = match &self.spec.single_file {
            Some(name) if self.spec.root.join(name).is_file() => File::open(self.spec.root.join(name)).ok(),
            Some(_) => None,
            None => open_below(&self.spec.root, path),
        };
        let Some(file) = opened else {
            return Ok(None);
        };
        let Ok(data) = file.metadata() else {
            return Ok(None);
        };
        // Pipes, devices and folders are no files, and a pipe would keep us for ever.
        if !data.is_file() {
            return Ok(None);
        }
        let too_large =
            || HandlerError::new(format!("too large: a file has at most {} bytes here", self.spec.max_size));
        if data.len() > self.spec.max_size {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or(0));
        let read = file.take(self.spec.max_size + 1).read_to_end(&mut bytes);
        read.map_err(|_| HandlerError::new("unavailable: the file could not be read"))?;
        if bytes.len() as u64 > self.spec.max_size {
            return Err(too_large());
        }
        let uri = self.uri(path);
        let contents = match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => ResourceContents::text(uri, text),
            Ok(text) => ResourceContents::blob(uri, text.into_bytes()),
            Err(error) => ResourceContents::blob(uri, error.into_bytes()),
        };
        Ok(Some(match self.mime(path) {
            Some(mime) => contents.with_mime(mime),
            None => contents,
        }))
    }
}

fn build_glob_set(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("{pattern:?}: {error}"))?);
    }
    set.build().map_err(|error| error.to_string())
}

/// Names that mean the same on every system: nothing that goes up, nothing that is absolute, nothing that some system
/// takes for a device, a stream or another name.
fn is_safe_path(path: &str) -> bool {
    path.len() <= 4096 && !path.is_empty() && path.split('/').all(is_safe_segment)
}

fn is_safe_segment(part: &str) -> bool {
    const RESERVED_NAMES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let stem = part.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_port = matches!(stem.get(..3), Some("com" | "lpt"))
        && stem.len() == 4
        && stem.ends_with(|last: char| last.is_ascii_digit());
    !(part.is_empty()
        || part.len() > 255
        || part == "."
        || part == ".."
        || part.contains(['\\', ':', '\0'])
        || part.chars().any(char::is_control)
        || part.ends_with(['.', ' '])
        || RESERVED_NAMES.contains(&stem.as_str())
        || is_port)
}

/// Opens a file below a folder, without ever leaving it. None if there is nothing that may be opened.
#[cfg(unix)]
fn open_below(root: &Path, path: &str) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open, openat};

    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    // A pipe is opened without waiting for somebody at its other end.
    let file = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let root = open(root, folder, Mode::empty()).ok()?;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&root, path, file, Mode::empty(), beneath) {
            Ok(opened) => return Some(opened.into()),
            // An old system, or one that may not: the longer way is as safe.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            Err(_) => return None,
        }
    }
    // Part by part, and no part is a link.
    let mut at = root;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { folder } else { file };
        at = openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    }
    Some(at.into())
}

#[cfg(not(unix))]
fn open_below(root: &Path, path: &str) -> Option<File> {
    let root = root.canonicalize().ok()?;
    let found = root.join(path).canonicalize().ok()?;
    found.starts_with(&root).then(|| File::open(found).ok()).flatten()
}

/// A path as a part of a URI.
fn percent_encode_path(path: &str) -> String {
    let mut escaped = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(byte.into())
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The media type that a name promises.
pub(crate) fn media_type(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match ending.as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" | "log" | "text" => "text/plain",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "toml" => "application/toml",
        "yaml" | "yml" => "application/yaml",
        "xml" => "application/xml",
        "rs" => "text/x-rust",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        "sql" => "application/sql",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}
