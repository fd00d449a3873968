//! Mounts: which server a path leads to, and how it responds there.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, Uri};
use toolgate_wire::Dialect;
use toolgate_wire::model::Tool;

use super::route::query_param;
use crate::error::{Error, ErrorKind};
use crate::servers::DEFAULT_SERVER_NAME;
use crate::transport::http::Body;

pub(super) type MountGuardFn = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
pub(super) type PageFn = Arc<dyn Fn(&PageRequest<'_>) -> serde_json::Value + Send + Sync>;

/// The mount at a path: a fixed server, or the one that the request selects.
#[derive(Clone)]
#[must_use]
#[doc(alias = "route")]
pub struct Mount {
    pub(super) selector: ServerSelector,
    pub(super) dialect: Option<Arc<Dialect>>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) guard: Option<MountGuardFn>,
    /// Renders a page about the server instead of serving its endpoint.
    pub(super) page: Option<PageFn>,
    pub(super) errors: Vec<String>,
}

#[derive(Clone)]
pub(super) enum ServerSelector {
    /// Always this server.
    Fixed(String),
    /// The server that the request names, or else the default.
    ByRequest { default_server: String },
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.selector {
            ServerSelector::Fixed(name) | ServerSelector::ByRequest { default_server: name } => name,
        };
        f.debug_struct("Mount").field("server", server).finish_non_exhaustive()
    }
}

impl Mount {
    /// Mounts the server of this name, independent of the request. It may be created later: until then requests are
    /// answered with 404.
    pub fn fixed(server: impl Into<String>) -> Mount {
        Mount::from_selector(ServerSelector::Fixed(server.into()))
    }

    /// Mounts the server that the request names: in the path segment after the mount, or else as `?server=`, or else
    /// the server `default` (or another one, see [`Mount::or`]). At `/mcp` these are `/mcp/NAME`, `/mcp?server=NAME`,
    /// `/mcp`. A request can select every server of the list, so each server needs guards of its own.
    pub fn select() -> Mount {
        Mount::from_selector(ServerSelector::ByRequest { default_server: DEFAULT_SERVER_NAME.into() })
    }

    fn from_selector(selector: ServerSelector) -> Mount {
        Mount { selector, dialect: None, headers: Vec::new(), guard: None, page: None, errors: Vec::new() }
    }

    /// Mounts a page about a server, for plain HTTP clients: a GET of exactly this path is answered with the JSON
    /// that the function returns. Callers are authorized by the guards of the server, and the page shows the tools
    /// that are visible to them. The function is called on the thread that serves the request, so it must not block.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use toolgate::{App, Mount, Servers};
    /// # let servers = Servers::new();
    /// let names = Mount::page("shop", |request| {
    ///     let wanted = request.query("like").unwrap_or_default();
    ///     let names = request.tools().iter().map(|tool| tool.name.as_str());
    ///     json!({ "tools": names.filter(|name| name.contains(&wanted)).collect::<Vec<_>>() })
    /// });
    /// let app = App::new(&servers).mount("/mcp", Mount::fixed("shop")).mount("/tools.json", names);
    /// # assert!(app.into_service().is_ok());
    /// ```
    pub fn page(
        server: impl Into<String>,
        page: impl Fn(&PageRequest<'_>) -> serde_json::Value + Send + Sync + 'static,
    ) -> Mount {
        Mount { page: Some(Arc::new(page)), ..Mount::fixed(server) }
    }

    /// Sets the server for requests that name none, instead of `default`.
    pub fn or(mut self, server: impl Into<String>) -> Mount {
        match &mut self.selector {
            ServerSelector::ByRequest { default_server } => *default_server = server.into(),
            ServerSelector::Fixed(_) => self.errors.push("`or` only applies to `Mount::select`".into()),
        }
        self
    }

    /// Sets the dialect for clients that name no protocol version, instead of the server's own.
    #[cfg(feature = "compat")]
    pub fn dialect(mut self, dialect: Dialect) -> Mount {
        self.dialect = Some(Arc::new(dialect));
        self
    }

    /// Sets a header of every response from here, including rejections. It replaces one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Mount {
        match (name.parse(), value.parse()) {
            (Ok(name), Ok(value)) => self.headers.push((name, value)),
            _ => self.errors.push(format!("{name:?}: {value:?} is not a valid header")),
        }
        self
    }

    /// Accepts only requests for which this function of their head returns true, before the guards of the
    /// server. Others are answered with status 403 and `Unauthorized`. The function is called on the thread that
    /// serves the request, so it must not block.
    pub fn guard(mut self, guard: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Mount {
        self.guard = Some(Arc::new(guard));
        self
    }
}

/// A request for a page: see [`Mount::page`].
#[derive(Debug)]
pub struct PageRequest<'a> {
    pub(super) uri: &'a Uri,
    pub(super) tools: Vec<Arc<Tool>>,
}

impl PageRequest<'_> {
    /// Returns a parameter of the query, percent-decoded.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<String> {
        query_param(self.uri, name)
    }

    /// The tools that are visible to the caller, in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }
}

impl Mount {
    pub(super) fn apply_headers(&self, response: &mut Response<Body>) {
        for (name, value) in &self.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
}

/// Changes the mounts of an app while it is served. A cheap handle: see [`App::mounts`](crate::App::mounts).
#[derive(Clone, Default)]
pub struct MountHandle(pub(super) Arc<ArcSwap<Vec<MountEntry>>>);

/// A path without a trailing slash, and its mount.
pub(super) type MountEntry = (Arc<str>, Arc<Mount>);

impl fmt::Debug for MountHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.load().iter().map(|(path, _)| path)).finish()
    }
}

impl MountHandle {
    /// Replaces all mounts at once. Requests in flight finish where they began.
    ///
    /// # Errors
    /// If a path does not begin with `/`, or is given twice. Then nothing has changed.
    pub fn replace<P: AsRef<str>>(&self, mounts: impl IntoIterator<Item = (P, Mount)>) -> Result<(), Error> {
        let mut next = Vec::new();
        let mut problems = Vec::new();
        for (path, mount) in mounts {
            problems.extend(add_mount(&mut next, path.as_ref(), mount));
        }
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::InvalidConfig, problems.join("\n")));
        }
        self.0.store(Arc::new(next));
        Ok(())
    }
}

/// Adds a mount, and returns its problems.
pub(super) fn add_mount(mounts: &mut Vec<MountEntry>, path: &str, mount: Mount) -> Vec<String> {
    let mut problems: Vec<String> =
        mount.errors.iter().map(|problem| format!("mount {path}: {problem}")).collect();
    let trimmed = path.trim_end_matches('/');
    if !path.starts_with('/') || path.contains(['?', '#']) {
        problems.push(format!("mount {path:?}: a path begins with `/`"));
    }
    if mounts.iter().any(|(known, _)| **known == *trimmed) {
        problems.push(format!("mount {path}: there are two of them"));
    }
    mounts.push((trimmed.into(), Arc::new(mount)));
    // The longest matching path wins.
    mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    problems
}
