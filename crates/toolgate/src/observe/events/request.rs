//! The event of a received request, which listeners may reject or change.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use toolgate_wire::RawJson;

use super::request_info::{RequestInfo, params_to_value};

/// The error code of a rejection whose listener chose none.
const DEFAULT_REJECTION_CODE: i64 = -32000;

/// A request that was received and is about to be handled. Listeners may inspect, reject or change it.
///
/// ```
/// # use toolgate::events::Events;
/// let events = Events::new();
/// events.on_request(|request| {
///     if request.header("x-client-id").is_none() {
///         request.reject("the x-client-id header is required");
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct RequestEvent {
    info: Arc<RequestInfo>,
    is_changed: bool,
    rejection: Option<ListenerRejection>,
}

/// How to reject a request: HTTP status, JSON-RPC error code and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerRejection {
    /// `None` if the listener chose no status: then 401 applies to listeners of one server, 200 to all others.
    pub(crate) status: Option<u16>,
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl RequestEvent {
    pub(crate) fn new(info: Arc<RequestInfo>) -> RequestEvent {
        RequestEvent { info, is_changed: false, rejection: None }
    }

    /// Rejects the request with an error message; its handler does not run.
    ///
    /// The client receives a JSON-RPC error with code -32000. Only the first rejection counts.
    pub fn reject(&mut self, message: impl Into<String>) {
        self.set_rejection(None, DEFAULT_REJECTION_CODE, message.into());
    }

    /// Rejects the request with an HTTP status, a JSON-RPC error code and a message.
    ///
    /// ```
    /// # toolgate::events::Events::new().on_request(|request| {
    /// request.reject_with(429, -32000, "Rate limit exceeded");
    /// # });
    /// ```
    pub fn reject_with(&mut self, status: u16, code: i64, message: impl Into<String>) {
        self.set_rejection(Some(status), code, message.into());
    }

    /// Returns whether a listener has rejected the request.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.rejection.is_some()
    }

    /// Replaces the method, so that the request is handled as a call of `method`.
    pub fn set_method(&mut self, method: impl Into<String>) {
        self.is_changed = true;
        Arc::make_mut(&mut self.info).method = method.into().into();
    }

    /// Returns the parameters for modification. If they are not an object afterwards, the request has none.
    pub fn params_mut(&mut self) -> &mut Value {
        self.is_changed = true;
        let RequestInfo { changed_params, parsed_params, params, .. } = Arc::make_mut(&mut self.info);
        changed_params.get_or_insert_with(|| {
            parsed_params.get().cloned().unwrap_or_else(|| params_to_value(params.as_ref()))
        })
    }

    /// Returns the whole event as JSON; see [`Event::data`](super::Event::data).
    #[must_use]
    pub fn data(&self) -> Value {
        let mut data = self.info.data();
        data["reject"] = self.is_rejected().into();
        data["errorMessage"] = self.rejection.as_ref().map_or("", |rejection| &rejection.message).into();
        data
    }

    pub(crate) fn set_rejection(&mut self, status: Option<u16>, code: i64, message: String) {
        self.rejection.get_or_insert(ListenerRejection { status, code, message });
    }

    /// Undoes the changes of a listener that failed, but keeps its rejection.
    pub(crate) fn restore(&mut self, before: RequestEvent) {
        let rejection = self.rejection.take().or(before.rejection);
        *self = RequestEvent { rejection, ..before };
    }

    /// Sets the status of the rejection, if there is one and its listener chose no status.
    pub(crate) fn set_default_status(&mut self, status: u16) {
        if let Some(rejection) = &mut self.rejection {
            rejection.status.get_or_insert(status);
        }
    }

    /// Returns the request to handle, whether listeners changed it, and the rejection, if any.
    pub(crate) fn into_parts(mut self) -> (Arc<RequestInfo>, bool, Option<ListenerRejection>) {
        if self.is_changed {
            let info = Arc::make_mut(&mut self.info);
            if let Some(params) = info.changed_params.take() {
                info.params = params.is_object().then(|| RawJson::from(&params));
                info.parsed_params = OnceLock::new();
            }
        }
        (self.info, self.is_changed, self.rejection)
    }
}

impl Deref for RequestEvent {
    type Target = RequestInfo;

    fn deref(&self) -> &RequestInfo {
        &self.info
    }
}
