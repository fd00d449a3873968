//! Where a service is mounted, and which route a path is.

use std::net::SocketAddr;
use std::sync::Arc;

use toolgate_wire::Dialect;

use crate::transport::RequestHead;
use crate::transport::listen::RemoteAddr;

/// Where the paths of a service begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountPoint {
    /// At this path of the host; every other path is not found.
    Path(Arc<str>),
    /// Below a router that has already removed its prefix from the path.
    Mounted,
}

/// The path of a request before our router removed its prefix; stored in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct OriginalPath(pub(crate) Box<str>);

/// The mount a request came through.
#[derive(Clone, Debug)]
pub(crate) struct MountContext {
    pub(crate) mount_point: MountPoint,
    /// The dialect for clients that name no protocol version. `None`: the dialect of the server.
    pub(crate) dialect: Option<Arc<Dialect>>,
    /// The remote address of the connection, if our own listener accepted it.
    pub(crate) remote: Option<SocketAddr>,
}

/// The endpoint that a path names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Messages,
    LegacyStream,
    LegacyMessages,
    NotFound,
}

impl MountContext {
    /// The remote address of the connection, as our listener or a layer in front of us states it.
    pub(super) fn remote_addr(&self, head: &RequestHead) -> Option<SocketAddr> {
        self.remote.or_else(|| head.extensions.get::<RemoteAddr>().map(|remote| remote.0))
    }

    pub(super) fn route(&self, path: &str) -> Route {
        match (&self.mount_point, path) {
            (_, "/sse") => Route::LegacyStream,
            (_, "/messages") => Route::LegacyMessages,
            (MountPoint::Mounted, _) => Route::Messages,
            (MountPoint::Path(own), path) if path == &**own || path.strip_suffix('/') == Some(own) => {
                Route::Messages
            }
            (MountPoint::Path(_), _) => Route::NotFound,
        }
    }
}
