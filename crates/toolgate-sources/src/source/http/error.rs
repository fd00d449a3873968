//! Why a request to a backend failed.

use std::error::Error as _;
use std::fmt;

use super::connector::ConnectError;
use super::response::BodyError;
use crate::source::egress::EgressError;

/// Why a request got no response. The text is safe to show to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The address or redirect is not allowed.
    Rejected(String),
    /// Connecting failed, so nothing was sent.
    Unreachable(String),
    /// The connection was lost after the request was sent, perhaps in part.
    ConnectionLost,
    /// The response has an unsupported content encoding.
    UnsupportedEncoding,
}

impl RequestError {
    /// The error code in `_meta`.
    pub(super) fn code(&self) -> &'static str {
        match self {
            RequestError::Rejected(_) => "refused",
            RequestError::Unreachable(_) => "unreachable",
            RequestError::ConnectionLost => "broken",
            RequestError::UnsupportedEncoding => "unreadable",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Rejected(message) | RequestError::Unreachable(message) => f.write_str(message),
            RequestError::ConnectionLost => f.write_str("the connection to the backend was lost"),
            RequestError::UnsupportedEncoding => {
                f.write_str("the backend's response has an unsupported encoding")
            }
        }
    }
}

impl From<BodyError> for RequestError {
    fn from(error: BodyError) -> RequestError {
        match error {
            BodyError::Io => RequestError::ConnectionLost,
            BodyError::UnsupportedEncoding => RequestError::UnsupportedEncoding,
        }
    }
}

pub(super) fn request_error(error: &hyper_util::client::legacy::Error) -> RequestError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<ConnectError>() {
            Some(ConnectError::Egress(error @ EgressError::AddressNotAllowed)) => {
                return RequestError::Rejected(error.to_string());
            }
            Some(error) => return RequestError::Unreachable(error.to_string()),
            None => cause = inner.source(),
        }
    }
    if error.is_connect() {
        RequestError::Unreachable("cannot connect".into())
    } else {
        RequestError::ConnectionLost
    }
}
