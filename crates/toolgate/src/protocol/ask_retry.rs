//! Server-to-client requests by ending the call: the result lists the requests, and the client calls again with the answers.
//!
//! The handler runs again each time. The answers so far and the values that it recorded make up the journal; between two runs
//! the client holds it, sealed, as `requestState`. The journal is bound to the caller, the method and the arguments: in any
//! other call it is rejected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use toolgate_wire::model::{
    Call, ClientResult, InputRequired, LogLevel, Notification, Outcome, Retry, ServerRequest, ToolOutput,
};
use toolgate_wire::{Client, Kind, ProtocolError, ProtocolVersion, RawJson, codec};

use super::{Protocol, ServerInfo};
use crate::handler::{ClientChannel, ReplayState, ServerRequestError, ServerRequestErrorKind};
use crate::registry::validate_elicitation;
use crate::request::{BoxFuture, CallError, Caller, Principal};
use crate::seal::Seal;
use crate::stream::Stream;
use crate::util::clock::Clock;
use crate::util::lock;
use crate::util::stored_json;

/// How long a client may take to call again.
const STATE_TTL: Duration = Duration::from_secs(15 * 60);
/// Maximum number of rounds of requests in one call.
const MAX_ROUNDS: u64 = 16;
/// Maximum length of the sealed journal.
const MAX_STATE_BYTES: usize = 64 << 10;

/// The channel of one run of a call whose client must call again to answer requests.
pub(super) struct RetryChannel {
    version: ProtocolVersion,
    client: Arc<Client>,
    log_level: Option<LogLevel>,
    /// `None` if the client accepts no stream, only the response.
    out: Option<Arc<Stream>>,
    is_tool: bool,
    /// The values that the sealed journal is bound to. Their digest is computed when needed: most calls send no request.
    binding: StateBinding,
    state_sealer: Arc<StateSealer>,
    /// `None` as long as the client has sent no state and the handler has sent no request: nearly always.
    journal: Mutex<Option<Box<Journal>>>,
}

struct StateBinding {
    principal: Principal,
    method: &'static str,
    /// As received: the relevant part is read when the digest is computed.
    params: Option<RawJson>,
}

/// Seals and opens journals. In one `Arc`, because every call holds it and almost none uses it.
pub(super) struct StateSealer {
    /// The name of the server is part of the binding: servers may share keys, but not journals.
    pub(super) server_info: Arc<ArcSwap<ServerInfo>>,
    pub(super) seal: Seal,
    pub(super) clock: Clock,
}

#[derive(Default)]
struct Journal {
    /// The sealed journal of the client; taken when it is opened.
    sealed: Option<String>,
    /// The responses that the client sent with this call. Raw until their request is known.
    responses: BTreeMap<String, RawJson>,
    round: u64,
    /// Responses of this and earlier runs.
    answers: BTreeMap<String, RawJson>,
    /// Recorded values of this and earlier runs.
    recorded_values: BTreeMap<String, RawJson>,
    /// Requests of this run without a response.
    pending: BTreeMap<String, ServerRequest>,
    state_error: Option<ProtocolError>,
}

impl RetryChannel {
    pub(super) fn new(
        version: ProtocolVersion,
        call: &Call,
        params: Option<&RawJson>,
        caller: &Caller,
        out: Option<Arc<Stream>>,
        protocol: &Protocol,
    ) -> RetryChannel {
        let retry = match call {
            Call::CallTool { retry, .. }
            | Call::GetPrompt { retry, .. }
            | Call::ReadResource { retry, .. } => Some(retry),
            _ => None,
        };
        let journal =
            retry.filter(|retry| !retry.is_empty()).map(|Retry { input_responses, request_state }| {
                Box::new(Journal {
                    sealed: request_state.clone(),
                    responses: input_responses.clone(),
                    ..Journal::default()
                })
            });
        let binding = StateBinding {
            principal: caller.principal.clone(),
            method: call.method(),
            params: params.cloned(),
        };
        RetryChannel {
            version,
            client: Arc::clone(&caller.client),
            log_level: caller.meta.log_level,
            out,
            is_tool: matches!(call, Call::CallTool { .. }),
            binding,
            state_sealer: Arc::clone(&protocol.state_sealer),
            journal: Mutex::new(journal),
        }
    }

    /// Why the journal of the client is rejected, if it is.
    pub(super) fn state_error(&self) -> Option<ProtocolError> {
        lock(&self.journal).as_ref()?.state_error.clone()
    }

    pub(super) fn has_pending(&self) -> bool {
        lock(&self.journal).as_ref().is_some_and(|journal| !journal.pending.is_empty())
    }

    /// Ends this run: returns the requests to the client and the sealed journal.
    pub(super) fn suspend(&self) -> Result<Outcome, ProtocolError> {
        let mut slot = lock(&self.journal);
        let journal = slot.get_or_insert_default();
        if journal.round >= MAX_ROUNDS {
            let message = format!("the call was abandoned after {MAX_ROUNDS} requests for input");
            return if self.is_tool {
                Ok(Outcome::Tool(ToolOutput::error(message)))
            } else {
                Err(ProtocolError::invalid_params(message))
            };
        }
        let plain = journal.encode(self.state_sealer.clock.unix_secs() + STATE_TTL.as_secs());
        let state = self.state_sealer.seal.seal(&self.digest(), &plain);
        if state.len() > MAX_STATE_BYTES {
            // If the client's answers are too long, that is its error and not ours.
            if journal.answers.values().map(|raw| raw.as_bytes().len()).sum::<usize>() > MAX_STATE_BYTES / 2 {
                return Err(ProtocolError::invalid_params(format!(
                    "the input responses are longer than {} bytes in total",
                    MAX_STATE_BYTES / 2
                )));
            }
            let reference = crate::seal::error_reference();
            tracing::error!(
                reference,
                bytes = state.len(),
                "the values that a handler recorded exceed the size limit of `requestState`"
            );
            return Err(ProtocolError::internal(&reference));
        }
        let input_requests = std::mem::take(&mut journal.pending);
        Ok(Outcome::InputRequired(InputRequired { input_requests, request_state: Some(state) }))
    }

    /// Opens the sealed journal of the client, when it is first needed.
    fn unseal<'a>(&self, slot: &'a mut Option<Box<Journal>>) -> &'a mut Journal {
        let journal = slot.get_or_insert_default();
        if let Some(sealed) = journal.sealed.take() {
            let plain = self.state_sealer.seal.open(&self.digest(), &sealed);
            if let Err(reason) = plain
                .map_err(|_| "invalid")
                .and_then(|plain| journal.decode(&plain, self.state_sealer.clock.unix_secs()))
            {
                let error = ProtocolError::invalid_params(format!("requestState is {reason}"));
                journal.state_error = Some(error.with_data(RawJson::from(json!({ "reason": reason }))));
            }
        }
        journal
    }

    /// Returns the response to a request if the client has sent it. Otherwise adds the request to the pending ones.
    fn find_or_add_request(
        &self,
        key: &str,
        request: ServerRequest,
    ) -> Result<ClientResult, ServerRequestError> {
        let mut slot = lock(&self.journal);
        let journal = self.unseal(&mut slot);
        if journal.state_error.is_some() {
            return Err(ServerRequestError(ServerRequestErrorKind::Suspended));
        }
        if let Some(answer) = journal.answers.get(key).and_then(|raw| self.parse_response(&request, raw)) {
            return Ok(answer);
        }
        // An invalid response is ignored, and the request is sent again.
        if let Some(raw) = journal.responses.get(key)
            && let Some(answer) = self.parse_response(&request, raw)
        {
            journal.answers.insert(key.to_owned(), raw.clone());
            return Ok(answer);
        }
        if let Some((what, missing)) = codec::missing_capabilities(&self.client, &request) {
            let kind = ServerRequestErrorKind::MissingCapability(what, Box::new(missing));
            return Err(ServerRequestError(kind));
        }
        if journal.pending.insert(key.to_owned(), request).is_some() {
            tracing::error!(key, "two requests of one call have the same key; give each its own");
        }
        Err(ServerRequestError(ServerRequestErrorKind::Suspended))
    }

    fn parse_response(&self, request: &ServerRequest, raw: &RawJson) -> Option<ClientResult> {
        let answer = codec::read_client_result(self.version, request, raw).ok()?;
        validate_elicitation(request, &answer).ok()?;
        Some(answer)
    }
}

impl ClientChannel for RetryChannel {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        self.out.is_some() && self.log_level.is_some_and(|min| level >= min)
    }

    fn notify(&self, notification: &Notification) -> bool {
        let Some(out) = &self.out else { return false };
        let mut message = Vec::with_capacity(192);
        codec::write_notification(&mut message, self.version, notification, None) && out.hint(message.into())
    }

    fn request<'a>(
        &'a self,
        key: &'a str,
        request: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(async move { self.find_or_add_request(key, request) })
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        self.unseal(&mut lock(&self.journal)).recorded_values.get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        self.unseal(&mut lock(&self.journal)).recorded_values.insert(name.to_owned(), value);
    }

    fn suspension_error(&self) -> Option<CallError> {
        let mut slot = lock(&self.journal);
        if slot.is_none() {
            return None;
        }
        let journal = self.unseal(&mut slot);
        if let Some(error) = &journal.state_error {
            return Some(CallError::Protocol(error.clone()));
        }
        (!journal.pending.is_empty()).then_some(CallError::InputRequired)
    }

    fn release_stream(&self, _: Duration) {}

    fn replay_state(&self) -> ReplayState {
        let mut slot = lock(&self.journal);
        let journal = self.unseal(&mut slot);
        ReplayState { responses: journal.answers.clone(), recorded_values: journal.recorded_values.clone() }
    }
}

impl Journal {
    fn encode(&self, expires: u64) -> Vec<u8> {
        let object = |entries: &BTreeMap<String, RawJson>| {
            let mut object = Map::new();
            for (key, raw) in entries {
                object.insert(key.clone(), raw.to_value());
            }
            object
        };
        let plain = json!({
            "expires": expires,
            "round": self.round + 1,
            "answers": object(&self.answers),
            "memory": object(&self.recorded_values),
        });
        plain.to_string().into_bytes()
    }

    fn decode(&mut self, plain: &[u8], now: u64) -> Result<(), &'static str> {
        let plain = stored_json::parse(Bytes::copy_from_slice(plain)).ok_or("invalid")?;
        let number = |name: &str| plain.view().get(name)?.as_u64();
        if number("expires").is_none_or(|expires| expires < now) {
            return Err("expired");
        }
        self.round = number("round").unwrap_or(MAX_ROUNDS);
        self.answers = stored_json::object_members(&plain, "answers");
        // Values that this run has recorded are newer.
        let mut recorded_values = stored_json::object_members(&plain, "memory");
        recorded_values.extend(std::mem::take(&mut self.recorded_values));
        self.recorded_values = recorded_values;
        Ok(())
    }
}

impl RetryChannel {
    /// The digest of the values that the sealed journal is bound to: server, caller, method and arguments.
    fn digest(&self) -> [u8; 32] {
        let StateBinding { principal, method, params } = &self.binding;
        // It was decoded before, so this does not fail.
        let call = codec::read_call(self.version, method, params.as_ref()).ok();
        let subject = call.as_ref().and_then(Call::mirrored_name).unwrap_or_default();
        let arguments = match &call {
            Some(Call::CallTool { arguments, .. }) => arguments.clone(),
            Some(Call::GetPrompt { arguments, .. }) => RawJson::from_serializable(arguments).ok(),
            _ => None,
        };
        let mut hash = Sha256::new();
        let server_info = self.state_sealer.server_info.load();
        let parts = [&server_info.implementation.name, principal.id().unwrap_or_default(), method, subject];
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update([u8::from(principal.id().is_some())]);
        if let Some(arguments) = &arguments {
            hash_canonical_json(&mut hash, arguments);
        }
        hash.finalize().into()
    }
}

/// Hashes JSON independently of the order of members and of escapes in strings.
fn hash_canonical_json(hash: &mut Sha256, raw: &RawJson) {
    let value = raw.view();
    let text = |hash: &mut Sha256, text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    hash.update([value.kind() as u8]);
    match value.kind() {
        Kind::Object => {
            let members = stored_json::members(raw, value);
            hash.update((members.len() as u64).to_le_bytes());
            for (key, member) in &members {
                text(hash, key);
                hash_canonical_json(hash, member);
            }
        }
        Kind::Array => {
            hash.update((value.items().count() as u64).to_le_bytes());
            value.items().for_each(|item| hash_canonical_json(hash, &raw.slice(item)));
        }
        Kind::String => text(hash, &value.as_string().unwrap_or_default()),
        _ => {
            hash.update((value.as_bytes().len() as u64).to_le_bytes());
            hash.update(value.as_bytes());
        }
    }
}
