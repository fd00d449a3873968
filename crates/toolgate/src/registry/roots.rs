//! Workspace roots: the directories that `file:` resources may be read from.
//!
//! A server with roots rejects `file:` URIs outside of them, directly or through `..`, percent-encoding or a symbolic link.
//! Reading itself is done by handlers. Callers are not known here.

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

/// Maximum number of roots.
const MAX_ROOTS: usize = 256;

/// Maximum length of a `file:` URI.
const MAX_FILE_URI_BYTES: usize = 4096;

/// The workspace roots of a server: directories that `file:` resources may be read from.
///
/// A server with roots answers `roots/list` to clients that name no protocol version, and rejects `file:` resources outside of
/// the roots for all clients. Cloning is cheap, and clones share the same roots.
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
    /// For a root added by a client: the directory that it must stay in.
    boundary: Option<PathBuf>,
}

/// Which roots clients may add and remove.
#[derive(Clone, Debug)]
enum WriteAccess {
    ReadOnly,
    Unrestricted,
    Within(PathBuf),
}

impl Roots {
    /// Creates roots from `file:` URIs of directories, which need not exist. Clients can list them, but not change them.
    pub fn new(uris: impl IntoIterator<Item = impl Into<String>>) -> Roots {
        let mut roots =
            Roots { entries: Arc::default(), write_access: WriteAccess::ReadOnly, errors: Vec::new() };
        for uri in uris {
            let added = roots.add(&uri.into(), None, None);
            roots.errors.extend(added.err().map(|error| error.to_string()));
        }
        roots
    }

    /// Lets clients add and remove roots with `roots/add` and `roots/remove`. **Every caller can then read every file that the
    /// server can read.** Only for servers with trusted clients.
    #[must_use]
    pub fn writable(mut self) -> Roots {
        self.write_access = WriteAccess::Unrestricted;
        self
    }

    /// Lets clients add and remove roots inside of this directory. Symbolic links out of it are rejected.
    #[must_use]
    pub fn writable_below(mut self, uri: impl AsRef<str>) -> Roots {
        match parse_file_uri(uri.as_ref()) {
            Ok(path) => self.write_access = WriteAccess::Within(path),
            Err(why) => self.errors.push(ProtocolError::invalid_root(uri.as_ref(), why).to_string()),
        }
        self
    }

    /// Returns the roots, in the order of addition.
    #[must_use]
    pub fn list(&self) -> Vec<Root> {
        self.lock().iter().map(|entry| entry.root.clone()).collect()
    }

    /// Returns the path of a `file:` URI with symbolic links resolved, or `None` if it is outside of every root or cannot be
    /// resolved. Accesses the file system, so it may block. A file that does not exist is checked by the path it would have.
    #[must_use]
    pub fn resolve(&self, uri: &str) -> Option<PathBuf> {
        let path = resolve_symlinks(&parse_file_uri(uri).ok()?)?;
        let entries: Vec<RootEntry> = self.lock().clone();
        let contains = |entry: &RootEntry| {
            let Some(root) = resolve_symlinks(&entry.path) else { return false };
            let is_within_boundary = entry
                .boundary
                .as_deref()
                .is_none_or(|limit| resolve_symlinks(limit).is_some_and(|limit| root.starts_with(limit)));
            is_within_boundary && path.starts_with(root)
        };
        entries.iter().any(contains).then_some(path)
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(format!("workspace_roots: {}", self.errors.join("; "))),
        }
    }

    /// Handles `roots/list`, `roots/add` and `roots/remove`, and publishes changes.
    pub(crate) fn handle_call(
        &self,
        call: &Call,
        subscriptions: &Subscriptions,
    ) -> Result<Outcome, ProtocolError> {
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
        subscriptions.publish(&ChangeTopic::Roots);
        Ok(Outcome::Empty)
    }

    /// Adds a root, which must be inside of `within` if given.
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
        let mut entries = self.lock();
        if entries.iter().any(|entry| entry.path == path) {
            return Err(ProtocolError::duplicate_root(uri));
        }
        if entries.len() >= MAX_ROOTS {
            return Err(ProtocolError::invalid_root(uri, "there are too many already"));
        }
        let last = path.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        let name = name.map_or_else(|| last.into_owned(), str::to_owned);
        let root = Root::new(uri).with_name(name);
        entries.push(RootEntry { root, path, boundary: within.map(Path::to_owned) });
        Ok(())
    }

    /// Removes a root, which must be inside of `within` if given.
    pub(crate) fn remove(&self, uri: &str, within: Option<&Path>) -> Result<(), ProtocolError> {
        let path = parse_file_uri(uri).map_err(|why| ProtocolError::invalid_root(uri, why))?;
        if within.is_some_and(|limit| !path.starts_with(limit)) {
            return Err(ProtocolError::root_not_found(uri));
        }
        let mut entries = self.lock();
        let index = entries
            .iter()
            .position(|entry| entry.path == path)
            .ok_or_else(|| ProtocolError::root_not_found(uri))?;
        entries.remove(index);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RootEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a resource, unless it is a `file:` URI outside of the roots.
pub(crate) fn read_in_roots(
    roots: Option<Arc<Roots>>,
    run: &ReadFn,
    cx: Context,
    uri: String,
    variables: Vec<(String, String)>,
) -> BoxFuture<'static, Result<ReadOutcome, HandlerFailure>> {
    let Some(roots) = roots.filter(|_| is_file_uri(&uri)) else {
        return run(cx, uri, variables);
    };
    let (run, file_uri) = (Arc::clone(run), uri.clone());
    Box::pin(async move {
        // The file system may block. If the lookup fails, the resource is reported as not found.
        let resolved = spawn::spawn_blocking(move || roots.resolve(&file_uri)).await;
        match resolved {
            Some(Some(_)) => run(cx, uri, variables).await,
            _ => Ok(ReadOutcome::NotFound),
        }
    })
}

fn is_file_uri(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.trim().eq_ignore_ascii_case("file"))
}

/// Returns the path of a `file:` URI. Rejects everything that two parsers could understand differently: `..` segments, even
/// harmless ones, invalid percent-encoding, and queries.
fn parse_file_uri(uri: &str) -> Result<PathBuf, &'static str> {
    let (scheme, rest) = uri.split_once(':').ok_or("it is not a URI")?;
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
    let path = String::from_utf8(decode(path.as_bytes())).map_err(|_| "its path is not valid UTF-8")?;
    if path.contains(['\0', '\\']) {
        return Err("its path has a character that no path should have");
    }
    if path.split('/').any(|part| part == "..") {
        return Err("its path contains `..`");
    }
    // On Windows, a drive is written `/C:/files`.
    let path = if cfg!(windows) { path.trim_start_matches('/') } else { &path };
    Ok(PathBuf::from(path))
}

/// Resolves the symbolic links of a path. The missing part of a path that does not exist is appended to its last existing
/// ancestor. Returns `None` for a dangling link, which could point anywhere a moment later.
fn resolve_symlinks(path: &Path) -> Option<PathBuf> {
    let mut ancestor = path;
    let mut missing = Vec::new();
    loop {
        match fs::canonicalize(ancestor) {
            Ok(real) => return Some(missing.into_iter().rev().fold(real, |path, part| path.join(part))),
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(ancestor).is_err() => {
                missing.push(ancestor.file_name()?);
                ancestor = ancestor.parent()?;
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_uris_are_rejected() {
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
    fn clients_change_only_writable_roots() {
        let subscriptions = Subscriptions::default();
        let add = |roots: &Roots, uri: &str| {
            roots.handle_call(&Call::AddRoot { uri: uri.into(), name: None }, &subscriptions).map(|_| ())
        };
        let fixed = Roots::new(["file:///a"]);
        assert!(add(&fixed, "file:///b").is_err());
        let below = Roots::new(["file:///x"]).writable_below("file:///a");
        assert_eq!(add(&below, "file:///a/b"), Ok(()));
        assert_eq!(add(&below, "file:///a/b/"), Err(ProtocolError::duplicate_root("file:///a/b/")));
        assert!(add(&below, "file:///ab").is_err());
        let names: Vec<_> = below.list().into_iter().filter_map(|root| root.name).collect();
        assert_eq!(names, ["x", "b"]);
        let gone = below.handle_call(&Call::RemoveRoot { uri: "file:///x".into() }, &subscriptions);
        assert_eq!(
            gone,
            Err(ProtocolError::root_not_found("file:///x")),
            "clients cannot remove what they cannot add"
        );
        let any = Roots::new([""; 0]).writable();
        assert_eq!(add(&any, "file:///b"), Ok(()));
        let gone = any.handle_call(&Call::RemoveRoot { uri: "file:///c".into() }, &subscriptions);
        assert_eq!(gone, Err(ProtocolError::root_not_found("file:///c")));
    }

    #[test]
    fn invalid_roots_fail_the_build() {
        let error = crate::Server::new("x", "1").workspace_roots(Roots::new(["notes"])).build().unwrap_err();
        assert!(error.to_string().contains("notes cannot be a root"), "{error}");
    }
}
