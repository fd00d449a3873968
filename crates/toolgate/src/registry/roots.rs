//! The workspace: the directories that files may be read from.
//!
//! A server that has one refuses to read a `file:` URI that lies outside of every root, whether it says so or gets
//! there by `..`, by escapes or by a symbolic link. What is read, and how, is the business of handlers; who is
//! calling is not known here.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolgate_wire::ProtocolError;
use toolgate_wire::model::{Call, Outcome, Root};

use crate::handler::{Context, HandlerFailure, ReadFn, ReadOutcome};
use crate::request::BoxFuture;
use crate::subscriptions::{ChangeTopic, Subscriptions};
use crate::util::percent::decode;
use crate::util::spawn;

/// Roots of one workspace. One more is refused.
const MAX_ROOTS: usize = 256;

/// The longest URI of a file, in bytes.
const MAX_FILE_URI_BYTES: usize = 4096;

/// The roots of a server's workspace: directories that files may be read from.
///
/// A server that is given some answers `roots/list` to clients that name no protocol revision, and refuses to read
/// `file:` resources that lie outside of them, to everybody. Cloning is cheap, and clones are of one workspace.
///
/// ```
/// # use toolgate::Server;
/// # use toolgate::compat::Roots;
/// let roots = Roots::new(["file:///srv/notes"]);
/// let files = roots.clone();
/// let server = Server::new("notes", "1.0.0").workspace_roots(roots);
/// assert!(files.resolve("file:///srv/notes/today.txt").is_some());
/// assert!(files.resolve("file:///srv/notes/../keys").is_none());
/// # assert!(server.build().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Roots {
    entries: Arc<Mutex<Vec<RootEntry>>>,
    write_access: WriteAccess,
    errors: Vec<String>,
}

#[derive(Clone, Debug)]
struct RootEntry {
    root: Root,
    path: PathBuf,
    /// A client has added it, and may not get beyond this.
    boundary: Option<PathBuf>,
}

/// What clients may add and remove.
#[derive(Clone, Debug)]
enum WriteAccess {
    ReadOnly,
    Unrestricted,
    Within(PathBuf),
}

impl Roots {
    /// These directories, as `file:` URIs. They need not exist. Clients can list them and nothing else.
    pub fn new(uris: impl IntoIterator<Item = impl Into<String>>) -> Roots {
        let mut roots =
            Roots { entries: Arc::default(), write_access: WriteAccess::ReadOnly, errors: Vec::new() };
        for uri in uris {
            let put = roots.add(&uri.into(), None, None);
            roots.errors.extend(put.err().map(|fault| fault.to_string()));
        }
        roots
    }

    /// Lets clients add and remove roots with `roots/add` and `roots/remove`. Whoever may call the server can then
    /// read whatever it can: for servers whose clients are trusted with that.
    #[must_use]
    pub fn writable(mut self) -> Roots {
        self.write_access = WriteAccess::Unrestricted;
        self
    }

    /// Lets clients add and remove roots, but none outside of this directory: not even by a symbolic link in it.
    #[must_use]
    pub fn writable_below(mut self, uri: impl AsRef<str>) -> Roots {
        match parse_file_uri(uri.as_ref()) {
            Ok(path) => self.write_access = WriteAccess::Within(path),
            Err(why) => self.errors.push(ProtocolError::invalid_root(uri.as_ref(), why).to_string()),
        }
        self
    }

    /// The roots, in the order they were added.
    #[must_use]
    pub fn list(&self) -> Vec<Root> {
        self.lock().iter().map(|held| held.root.clone()).collect()
    }

    /// The file that a `file:` URI names, without symbolic links. None if it lies outside of every root, or cannot be
    /// looked for. Asks the file system, which may take its time; what is not there yet is judged by where it would be.
    #[must_use]
    pub fn resolve(&self, uri: &str) -> Option<PathBuf> {
        let sought = resolve_symlinks(&parse_file_uri(uri).ok()?)?;
        let held: Vec<RootEntry> = self.lock().clone();
        let holds = |held: &RootEntry| {
            let within = held.boundary.as_deref().is_none_or(|limit| {
                resolve_symlinks(limit)
                    .zip(resolve_symlinks(&held.path))
                    .is_some_and(|(limit, path)| path.starts_with(limit))
            });
            within && resolve_symlinks(&held.path).is_some_and(|root| sought.starts_with(root))
        };
        held.iter().any(holds).then_some(sought)
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(format!("workspace_roots: {}", self.errors.join("; "))),
        }
    }

    /// Answers what clients ask of the workspace, and tells of changes.
    pub(crate) fn handle_call(&self, call: &Call, hub: &Subscriptions) -> Result<Outcome, ProtocolError> {
        match (call, &self.write_access) {
            (Call::ListRoots, _) => return Ok(Outcome::Roots(self.list())),
            (Call::AddRoot { uri, name }, WriteAccess::Unrestricted) => {
                self.add(uri, name.as_deref(), None)?
            }
            (Call::AddRoot { uri, name }, WriteAccess::Within(limit)) => {
                self.add(uri, name.as_deref(), Some(limit))?;
            }
            (Call::RemoveRoot { uri }, WriteAccess::Unrestricted) => self.remove(uri, None)?,
            (Call::RemoveRoot { uri }, WriteAccess::Within(limit)) => self.remove(uri, Some(limit))?,
            (call, _) => return Err(ProtocolError::method_not_found(call.method())),
        }
        hub.publish(&ChangeTopic::Roots);
        Ok(Outcome::Empty)
    }

    /// Adds a root, which must lie within a limit if there is one.
    pub(crate) fn add(
        &self,
        uri: &str,
        name: Option<&str>,
        within: Option<&Path>,
    ) -> Result<(), ProtocolError> {
        let path = parse_file_uri(uri).map_err(|why| ProtocolError::invalid_root(uri, why))?;
        if within.is_some_and(|limit| !path.starts_with(limit)) {
            return Err(ProtocolError::invalid_root(uri, "it lies outside of what clients may add"));
        }
        let mut held = self.lock();
        if held.iter().any(|held| held.path == path) {
            return Err(ProtocolError::duplicate_root(uri));
        }
        if held.len() >= MAX_ROOTS {
            return Err(ProtocolError::invalid_root(uri, "there are too many already"));
        }
        let last = path.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        let name = name.map_or_else(|| last.into_owned(), str::to_owned);
        let root = Root { uri: uri.to_owned(), name: Some(name), meta: None };
        held.push(RootEntry { root, path, boundary: within.map(Path::to_owned) });
        Ok(())
    }

    /// Takes a root away, which must lie within a limit if there is one.
    pub(crate) fn remove(&self, uri: &str, within: Option<&Path>) -> Result<(), ProtocolError> {
        let path = parse_file_uri(uri).map_err(|why| ProtocolError::invalid_root(uri, why))?;
        if within.is_some_and(|limit| !path.starts_with(limit)) {
            return Err(ProtocolError::root_not_found(uri));
        }
        let mut held = self.lock();
        let place = held
            .iter()
            .position(|held| held.path == path)
            .ok_or_else(|| ProtocolError::root_not_found(uri))?;
        held.remove(place);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RootEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a resource, if it is no file outside of the workspace.
pub(crate) fn read_in_roots(
    roots: Option<Arc<Roots>>,
    run: &ReadFn,
    cx: Context,
    uri: String,
    words: Vec<(String, String)>,
) -> BoxFuture<'static, Result<ReadOutcome, HandlerFailure>> {
    let Some(roots) = roots.filter(|_| is_file_uri(&uri)) else {
        return run(cx, uri, words);
    };
    let (run, sought) = (Arc::clone(run), uri.clone());
    Box::pin(async move {
        // File systems may take their time. A look that fails is a look at nothing.
        let found = spawn::spawn_blocking(move || roots.resolve(&sought)).await;
        match found {
            Some(Some(_)) => run(cx, uri, words).await,
            _ => Ok(ReadOutcome::NotFound),
        }
    })
}

fn is_file_uri(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.trim().eq_ignore_ascii_case("file"))
}

/// The path that a URI names, or why it names none. Whatever two readers could read differently is refused: a path
/// that climbs, also if it ends where it began; escapes that are none; a query.
fn parse_file_uri(uri: &str) -> Result<PathBuf, &'static str> {
    let (scheme, rest) = uri.split_once(':').ok_or("it is no URI")?;
    if !scheme.eq_ignore_ascii_case("file") {
        return Err("its scheme is not `file`");
    }
    if uri.len() > MAX_FILE_URI_BYTES {
        return Err("it is too long");
    }
    let host = rest.strip_prefix("//localhost").or_else(|| rest.strip_prefix("//"));
    let path = host.unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("its path is not absolute");
    }
    if path.contains(['?', '#']) {
        return Err("it has a query or a fragment");
    }
    let is_escape =
        |after: &str| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !path.split('%').skip(1).all(is_escape) {
        return Err("it has a broken escape");
    }
    let path = String::from_utf8(decode(path.as_bytes())).map_err(|_| "its path is no text")?;
    if path.contains(['\0', '\\']) {
        return Err("its path has a character that no path should have");
    }
    if path.split('/').any(|part| part == "..") {
        return Err("its path climbs");
    }
    // `/C:/files` is how a URI spells a drive.
    let path = if cfg!(windows) { path.trim_start_matches('/') } else { &path };
    Ok(PathBuf::from(path))
}

/// A path without symbolic links. What is not there is where it would be, below the last that is. None where nobody can
/// say: a link that leads nowhere may lead somewhere the next moment.
fn resolve_symlinks(path: &Path) -> Option<PathBuf> {
    let mut known = path;
    let mut rest = Vec::new();
    loop {
        match fs::canonicalize(known) {
            Ok(real) => return Some(rest.into_iter().rev().fold(real, |path, part| path.join(part))),
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(known).is_err() => {
                rest.push(known.file_name()?);
                known = known.parent()?;
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_in_one_way_only() {
        for (uri, path) in [
            ("file:///a/b", "/a/b"),
            ("FILE:///a/b", "/a/b"),
            ("file:/a/b", "/a/b"),
            ("file://localhost/a/b", "/a/b"),
            ("file:///a%20b/./c/", "/a b/c"),
            ("file:///a/%252e%252e/b", "/a/%2e%2e/b"),
            ("file:///a/..b/c..", "/a/..b/c.."),
        ] {
            assert_eq!(
                parse_file_uri(uri).map(|path| path == Path::new(path.as_os_str())),
                Ok(true),
                "{uri}"
            );
            assert_eq!(parse_file_uri(uri).as_deref(), Ok(Path::new(path)), "{uri}");
        }
        for uri in [
            "nonsense",
            "notes:///a",
            "file:a/b",
            "file://host/a",
            "file://localhostess/a",
            "file:///a/../b",
            "file:///a/%2e%2e/b",
            "file:///a/%2E./b",
            "file:///a/..%2fb",
            "file:///a%2f..%2fb",
            "file:///a/..\\b",
            "file:///a%5c..%5cb",
            "file:///a?/../b",
            "file:///a#b",
            "file:///a%00b",
            "file:///a%zz",
            "file:///a%",
            "file:///%ff",
        ] {
            assert!(parse_file_uri(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn clients_add_what_they_may() {
        let hub = Subscriptions::default();
        let add = |roots: &Roots, uri: &str| {
            roots.handle_call(&Call::AddRoot { uri: uri.into(), name: None }, &hub).map(|_| ())
        };
        let fixed = Roots::new(["file:///a"]);
        assert!(add(&fixed, "file:///b").is_err());
        let below = Roots::new(["file:///x"]).writable_below("file:///a");
        assert_eq!(add(&below, "file:///a/b"), Ok(()));
        assert_eq!(add(&below, "file:///a/b/"), Err(ProtocolError::duplicate_root("file:///a/b/")));
        assert!(add(&below, "file:///ab").is_err());
        let names: Vec<_> = below.list().into_iter().filter_map(|root| root.name).collect();
        assert_eq!(names, ["x", "b"]);
        let gone = below.handle_call(&Call::RemoveRoot { uri: "file:///x".into() }, &hub);
        assert_eq!(
            gone,
            Err(ProtocolError::root_not_found("file:///x")),
            "what they may not add they may not take away"
        );
        let any = Roots::new([""; 0]).writable();
        assert_eq!(add(&any, "file:///b"), Ok(()));
        let gone = any.handle_call(&Call::RemoveRoot { uri: "file:///c".into() }, &hub);
        assert_eq!(gone, Err(ProtocolError::root_not_found("file:///c")));
    }

    #[test]
    fn what_is_wrong_is_told_when_the_server_is_built() {
        let error = crate::Server::new("x", "1").workspace_roots(Roots::new(["notes"])).build().unwrap_err();
        assert!(error.to_string().contains("notes cannot be a root"), "{error}");
    }
}
