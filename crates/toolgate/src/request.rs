//! What travels through the house once the vestibule has taken off its edition.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::Call;
use toolgate_wire::{Client, Fault, Meta};

/// A future with its type forgotten.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who is calling, as far as it was proven.
///
/// Without authentication everyone is [`Principal::anonymous`]. An authenticating layer in front of the
/// endpoint puts a `Principal` into the request's extensions; sessions and request state are bound to it.
///
/// ```
/// # use toolgate::Principal;
/// let ada = Principal::new("https://id.example.com/ada");
/// assert_eq!(ada.id(), Some("https://id.example.com/ada"));
/// assert_eq!(Principal::anonymous().id(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Principal(Option<Arc<str>>);

impl Principal {
    /// Somebody with this identity, unique among all principals of this server.
    pub fn new(id: impl Into<Arc<str>>) -> Principal {
        Principal(Some(id.into()))
    }

    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Principal {
        Principal(None)
    }

    /// The identity, if there is one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// Who wants something, and what they said beside it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// Said in this request or remembered from the handshake.
    pub(crate) client: Arc<Client>,
    /// Empty where there is no HTTP.
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) meta: Meta,
    /// Marked arguments must stand in headers too, and agree.
    pub(crate) mirrors: bool,
    /// What the other arguments are already, while one of them is completed.
    pub(crate) given: BTreeMap<String, String>,
}

/// One wish, ready for the hall.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) caller: Caller,
    /// Falls when nobody waits for the answer any more.
    pub(crate) cancel: CancellationToken,
}

/// Why a call has no outcome.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The peer is told this.
    Fault(Fault),
    /// The client must bring answers first; the voice of the call knows which.
    NeedsInput,
    /// Nobody waits any more.
    Cancelled,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}
