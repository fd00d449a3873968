//! Why a request to a backend failed.

use std::error::Error as _;
use std::fmt;

use super::connector::ConnectError;
use super::response::BodyError;
use crate::source::egress::EgressError;

/// Why there is no answer. What it says is safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// We do not go there.
    Rejected(String),
    /// Nothing was sent.
    Unreachable(String),
    /// Something was sent, nobody knows how much of it was heard.
    ConnectionLost,
    /// An answer that nobody can read.
    UnsupportedEncoding,
}

impl RequestError {
    /// One word for programs.
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
            RequestError::Rejected(said) | RequestError::Unreachable(said) => f.write_str(said),
            RequestError::ConnectionLost => f.write_str("the connection to the backend broke"),
            RequestError::UnsupportedEncoding => {
                f.write_str("the backend answered in an encoding that is not known")
            }
        }
    }
}

impl From<BodyError> for RequestError {
    fn from(unread: BodyError) -> RequestError {
        match unread {
            BodyError::Io => RequestError::ConnectionLost,
            BodyError::UnsupportedEncoding => RequestError::UnsupportedEncoding,
        }
    }
}

pub(super) fn request_error(error: &hyper_util::client::legacy::Error) -> RequestError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<ConnectError>() {
            Some(ConnectError::Egress(refused @ EgressError::AddressNotAllowed)) => {
                return RequestError::Rejected(refused.to_string());
            }
            Some(dial) => return RequestError::Unreachable(dial.to_string()),
            None => cause = inner.source(),
        }
    }
    if error.is_connect() {
        RequestError::Unreachable("cannot connect".into())
    } else {
        RequestError::ConnectionLost
    }
}
