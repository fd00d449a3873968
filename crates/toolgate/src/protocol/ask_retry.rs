//! Asking by ending the call: the client calls again and brings the answers.
//!
//! The handler runs anew each time. What it has been told so far, what its steps gave and what it set
//! aside make up the journal; between two runs the client carries it, sealed. The journal is bound to the
//! caller, the method and the arguments: brought to any other call it is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use toolgate_wire::model::{
    Call, ClientCapabilities, ClientResult, InputRequired, LogLevel, Notification, Outcome, Retry,
    ServerRequest, ToolOutput,
};
use toolgate_wire::{Client, Kind, ProtocolError, ProtocolVersion, RawJson, codec};

use super::{Protocol, ServerInfo};
use crate::handler::{ClientChannel, ReplayState, ServerRequestError, ServerRequestErrorKind};
use crate::registry::validate_elicitation;
use crate::request::{BoxFuture, CallError, Caller, Principal};
use crate::seal::Seal;
use crate::stream::Stream;
use crate::util::clock::Clock;
use crate::util::stored_json;

/// How long a client may take to come back.
const STATE_TTL: Duration = Duration::from_secs(15 * 60);
/// How often a call may ask.
const MAX_ROUNDS: u64 = 16;
/// How much a client may be given to carry.
const MAX_STATE_BYTES: usize = 64 << 10;

/// The voice of one run of a call whose client must call again to answer.
pub(super) struct RetryChannel {
    version: ProtocolVersion,
    client: Arc<Client>,
    log_level: Option<LogLevel>,
    /// None: the client takes one message only, the answer.
    out: Option<Arc<Stream>>,
    is_tool: bool,
    /// What the sealed journal is bound to. Computed when needed: most calls ask nothing.
    binding: StateBinding,
    state_sealer: Arc<StateSealer>,
    /// None as long as the client has brought nothing and nobody has asked: nearly always.
    journal: Mutex<Option<Box<Journal>>>,
}

struct StateBinding {
    principal: Principal,
    method: &'static str,
    /// As they came: what of them counts is read when it is asked for.
    params: Option<RawJson>,
}

/// What is needed to seal and to open, in one piece: every call keeps it, and hardly any uses it.
pub(super) struct StateSealer {
    /// Servers may share their keys; what one made up is not for the other.
    pub(super) server_info: Arc<ArcSwap<ServerInfo>>,
    pub(super) seal: Seal,
    pub(super) clock: Clock,
}

#[derive(Default)]
struct Journal {
    /// What the client carried; taken when it is opened.
    sealed: Option<String>,
    /// What the client brings this time. Stays raw until the question is known.
    responses: BTreeMap<String, RawJson>,
    round: u64,
    /// Answers of this and earlier runs.
    answers: BTreeMap<String, RawJson>,
    /// Steps and state of this and earlier runs.
    saved_values: BTreeMap<String, RawJson>,
    /// Asked in this run and not answered.
    pending: BTreeMap<String, ServerRequest>,
    /// What the client would have to be able to do, and the words in which the handler was told.
    missing_capabilities: Option<(ClientCapabilities, String)>,
    state_error: Option<ProtocolError>,
}

impl RetryChannel {
    pub(super) fn new(
        version: ProtocolVersion,
        call: &Call,
        params: Option<&RawJson>,
        caller: &Caller,
        out: Option<Arc<Stream>>,
        era: &Protocol,
    ) -> RetryChannel {
        let retry = match call {
            Call::CallTool { retry, .. }
            | Call::GetPrompt { retry, .. }
            | Call::ReadResource { retry, .. } => Some(retry),
            _ => None,
        };
        let journal = retry.filter(|retry| !retry.is_empty()).map(
            |Retry { input_responses: responses, request_state: state }| {
                Box::new(Journal {
                    sealed: state.clone(),
                    responses: responses.clone(),
                    ..Journal::default()
                })
            },
        );
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
            state_sealer: Arc::clone(&era.state_sealer),
            journal: Mutex::new(journal),
        }
    }

    /// Why the journal that the client brought is refused.
    pub(super) fn state_error(&self) -> Option<ProtocolError> {
        self.lock().as_ref()?.state_error.clone()
    }

    pub(super) fn has_pending(&self) -> bool {
        self.lock().as_ref().is_some_and(|journal| !journal.pending.is_empty())
    }

    /// Ends this run: what the client is asked, and what it is given to carry.
    pub(super) fn suspend(&self) -> Result<Outcome, ProtocolError> {
        let mut kept = self.lock();
        let journal = kept.get_or_insert_default();
        if journal.round >= MAX_ROUNDS {
            let said = format!("the call was abandoned after {MAX_ROUNDS} requests for input");
            return if self.is_tool {
                Ok(Outcome::Tool(ToolOutput::error(said)))
            } else {
                Err(ProtocolError::invalid_params(said))
            };
        }
        let plain = journal.encode(self.state_sealer.clock.unix_secs() + STATE_TTL.as_secs());
        let state = self.state_sealer.seal.seal(&self.digest(), &plain);
        if state.len() > MAX_STATE_BYTES {
            // Whoever brings too much is told so; it is no fault of ours.
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
                "the state of the handler is too large for requestState"
            );
            return Err(ProtocolError::internal(&reference));
        }
        let asks = std::mem::take(&mut journal.pending);
        Ok(Outcome::InputRequired(InputRequired { input_requests: asks, request_state: Some(state) }))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Journal>>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens what the client carried, the first time anybody wants to know.
    fn unseal<'a>(&self, kept: &'a mut Option<Box<Journal>>) -> &'a mut Journal {
        let journal = kept.get_or_insert_default();
        if let Some(sealed) = journal.sealed.take() {
            let plain = self.state_sealer.seal.open(&self.digest(), &sealed);
            if let Err(reason) = plain
                .map_err(|_| "invalid")
                .and_then(|plain| journal.decode(&plain, self.state_sealer.clock.unix_secs()))
            {
                let fault = ProtocolError::invalid_params(format!("requestState is {reason}"));
                journal.state_error = Some(fault.with_data(RawJson::from(json!({ "reason": reason }))));
            }
        }
        journal
    }

    fn ask_now(&self, key: &str, ask: ServerRequest) -> Result<ClientResult, ServerRequestError> {
        let mut kept = self.lock();
        let journal = self.unseal(&mut kept);
        if journal.state_error.is_some() {
            return Err(ServerRequestError(ServerRequestErrorKind::Suspended));
        }
        if let Some(known) = journal.answers.get(key).and_then(|raw| self.parse_response(&ask, raw)) {
            return Ok(known);
        }
        // An answer that is none counts for nothing, and the question is asked again.
        if let Some(raw) = journal.responses.get(key)
            && let Some(answer) = self.parse_response(&ask, raw)
        {
            journal.answers.insert(key.to_owned(), raw.clone());
            return Ok(answer);
        }
        if let Some((what, missing)) = codec::missing_capabilities(&self.client, &ask) {
            let error = ServerRequestError(ServerRequestErrorKind::Unsupported(what));
            journal.missing_capabilities = Some((missing, error.to_string()));
            return Err(error);
        }
        if journal.pending.insert(key.to_owned(), ask).is_some() {
            tracing::error!(key, "two questions of one call have the same key; give each its own");
        }
        Err(ServerRequestError(ServerRequestErrorKind::Suspended))
    }

    fn parse_response(&self, ask: &ServerRequest, raw: &RawJson) -> Option<ClientResult> {
        let answer = codec::read_client_result(self.version, ask, raw).ok()?;
        validate_elicitation(ask, &answer).ok()?;
        Some(answer)
    }
}

impl ClientChannel for RetryChannel {
    fn is_log_enabled(&self, level: LogLevel) -> bool {
        self.out.is_some() && self.log_level.is_some_and(|wanted| level >= wanted)
    }

    fn notify(&self, notice: &Notification) -> bool {
        let Some(out) = &self.out else { return false };
        let mut message = Vec::with_capacity(192);
        codec::write_notification(&mut message, self.version, notice, None) && out.hint(message.into())
    }

    fn request<'a>(
        &'a self,
        key: &'a str,
        ask: ServerRequest,
    ) -> BoxFuture<'a, Result<ClientResult, ServerRequestError>> {
        Box::pin(async move { self.ask_now(key, ask) })
    }

    fn recorded_value(&self, name: &str) -> Option<RawJson> {
        self.unseal(&mut self.lock()).saved_values.get(name).cloned()
    }

    fn record_value(&self, name: &str, value: RawJson) {
        self.unseal(&mut self.lock()).saved_values.insert(name.to_owned(), value);
    }

    fn suspension_error(&self, said: &str) -> Option<CallError> {
        let mut kept = self.lock();
        if kept.is_none() {
            return None;
        }
        let journal = self.unseal(&mut kept);
        if let Some(fault) = &journal.state_error {
            return Some(CallError::Protocol(fault.clone()));
        }
        if !journal.pending.is_empty() {
            return Some(CallError::InputRequired);
        }
        // The handler could not do without, if what it says is what it was told.
        let (missing, told) = journal.missing_capabilities.as_ref()?;
        said.contains(told.as_str())
            .then(|| CallError::Protocol(ProtocolError::missing_capability(missing, told.as_str())))
    }

    fn release_stream(&self, _: Duration) {}

    fn replay_state(&self) -> ReplayState {
        let mut kept = self.lock();
        let journal = self.unseal(&mut kept);
        ReplayState { responses: journal.answers.clone(), recorded_values: journal.saved_values.clone() }
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
            "memory": object(&self.saved_values),
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
        // What this run has already set aside is newer.
        let mut memory = stored_json::object_members(&plain, "memory");
        memory.extend(std::mem::take(&mut self.saved_values));
        self.saved_values = memory;
        Ok(())
    }
}

impl RetryChannel {
    /// What the sealed journal is bound to.
    fn digest(&self) -> [u8; 32] {
        let StateBinding { principal, method, params } = &self.binding;
        // It was read before, so it can be read.
        let call = codec::read_call(self.version, method, params.as_ref()).ok();
        let subject = call.as_ref().and_then(Call::mirrored_name).unwrap_or_default();
        let arguments = match &call {
            Some(Call::CallTool { arguments, .. }) => arguments.clone(),
            Some(Call::GetPrompt { arguments, .. }) => RawJson::from_serializable(arguments).ok(),
            _ => None,
        };
        let mut hash = Sha256::new();
        let face = self.state_sealer.server_info.load();
        let parts = [&face.implementation.name, principal.id().unwrap_or_default(), method, subject];
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

/// The same for the same JSON, however its members are ordered and its strings escaped.
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
