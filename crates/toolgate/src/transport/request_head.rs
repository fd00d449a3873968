//! The head of a request.

use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Uri, Version};

use crate::headers::RequestHeaders;

/// Like [`Parts`], but the headers are shared: a client sends the same headers with every request of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: Arc<RequestHeaders>,
    pub(crate) extensions: Extensions,
}

impl RequestHead {
    /// Copies the head into [`Parts`], for callbacks of users.
    pub(crate) fn to_parts(&self) -> Parts {
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = HeaderMap::clone(&self.headers);
        *request.extensions_mut() = self.extensions.clone();
        request.into_parts().0
    }
}

impl From<Parts> for RequestHead {
    fn from(parts: Parts) -> RequestHead {
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        RequestHead { method, uri, version, headers: Arc::new(headers.into()), extensions }
    }
}
