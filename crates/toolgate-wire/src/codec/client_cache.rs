//! The greetings heard last, so that one that is said again is not read again.
//!
//! Where there is no handshake a client introduces itself with every request,
//! in the same words each time. They are compared byte by byte with words that
//! were read before; equal words mean equal things, so nothing can be mistaken
//! and nothing has to be forgotten.
//!
//! Nobody waits here: a place that somebody else is looking at is passed by,
//! and the greeting read as if it were new. What is kept is bounded: a few
//! places, short greetings only, and no part of the message they came in.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::params_view::{ParamsView, read_version_str};
use crate::json::{View, view_from_trusted};
use crate::meta::{Client, meta_key};
use crate::params_index::{MetaKeys, ParamsIndex};
use crate::{ProtocolError, ProtocolVersion};

/// How many different greetings are remembered.
const CLIENT_SLOTS: usize = 16;

/// How many of them are recognized while a message is checked. Each is compared
/// with what comes, so these are few.
const META_SLOTS: usize = 4;

/// How many must have come in vain before one of those is replaced: where there
/// are many more clients than places, keeping the next one would only cost.
const MISSES_BEFORE_REPLACE: usize = 64;

/// The longest greeting that is remembered, in bytes.
const MAX_CACHED_BYTES: usize = 1024;

/// Clients that introduced themselves lately.
///
/// ```
/// # use toolgate_wire::codec::{Greetings, Said};
/// # use toolgate_wire::{Edition, Raw};
/// let params = Raw::from(serde_json::json!({ "_meta": {
///     "io.modelcontextprotocol/protocolVersion": Edition::NEWEST.date(),
///     "io.modelcontextprotocol/clientCapabilities": {},
/// } }));
/// let greetings = Greetings::default();
/// let (version, client) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert_eq!((&*version, client.edition), (Edition::NEWEST.date(), Edition::NEWEST));
/// let (_, again) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert!(std::sync::Arc::ptr_eq(&client, &again));
/// ```
#[derive(Debug, Default)]
pub struct ClientCache {
    clients: [Mutex<Option<CachedClient>>; CLIENT_SLOTS],
    metas: Mutex<MetaCache>,
}

/// Those whose `_meta` says nothing else, for [`read_knowing`](crate::read_knowing).
#[derive(Debug, Default)]
struct MetaCache {
    entries: [Option<CachedMeta>; META_SLOTS],
    /// How many were looked for since one was replaced.
    misses: usize,
    oldest: usize,
}

/// An object that was checked, and where its members are.
#[derive(Debug)]
struct CachedMeta {
    text: Box<[u8]>,
    max_depth: usize,
    version: Range<usize>,
    capabilities: Range<usize>,
    client_info: Option<Range<usize>>,
    client: Arc<Client>,
}

/// One greeting, as it was said and as it was understood.
#[derive(Debug)]
struct CachedClient {
    bytes: Box<[u8]>,
    /// Where the capabilities begin in `words`, and where the client does.
    offsets: [usize; 2],
    client: Arc<Client>,
}

impl ClientCache {
    /// What a request says of its sender: the edition as it spelled it, and the
    /// rest. The edition of the client is the one it names if that needs no
    /// handshake, and the newest otherwise: whether it is served is for others
    /// to judge.
    ///
    /// # Errors
    /// As [`Said::greeting`].
    pub fn resolve<'a>(&self, said: &ParamsView<'a>) -> Result<(Cow<'a, str>, Arc<Client>), ProtocolError> {
        let Some(words) = said.client_views() else {
            return read_client(said);
        };
        let recalled = said.index().and_then(ParamsIndex::client);
        if let (Some(client), Some(version)) = (recalled, read_version_str(words.version)) {
            return Ok((version, Arc::clone(client)));
        }
        let Ok(mut place) = self.clients[words.slot()].try_lock() else {
            return read_client(said);
        };
        if let Some(known) = &*place
            && words.matches(known)
            && let Some(version) = read_version_str(words.version)
        {
            self.insert_meta(said, &words, &known.client);
            return Ok((version, Arc::clone(&known.client)));
        }
        let (version, client) = read_client(said)?;
        if let Some(known) = words.to_cached(&client) {
            *place = Some(known);
        }
        Ok((version, client))
    }
}

impl ClientCache {
    /// The `_meta` at the beginning of `rest`, if it was met before: where its
    /// members are, how long it is, and who says it.
    pub(crate) fn lookup_meta<'a>(
        &self,
        rest: &'a [u8],
        max_depth: usize,
    ) -> Option<(MetaKeys<'a>, usize, Arc<Client>)> {
        let wholes = self.metas.try_lock().ok()?;
        let same = |whole: &&CachedMeta| whole.max_depth == max_depth && rest.starts_with(&whole.text);
        let whole = wholes.entries.iter().flatten().find(same)?;
        let view = |place: &Range<usize>| rest.get(place.clone()).map(view_from_trusted);
        let meta = MetaKeys {
            version: view(&whole.version),
            capabilities: view(&whole.capabilities),
            client_info: whole.client_info.as_ref().and_then(view),
            ..MetaKeys::default()
        };
        Some((meta, whole.text.len(), Arc::clone(&whole.client)))
    }

    /// Keeps a `_meta` that was checked as part of a message, if there is
    /// nothing in it but a greeting.
    fn insert_meta(&self, said: &ParamsView<'_>, words: &ClientViews<'_>, client: &Arc<Client>) {
        let (Some(index), Some(meta)) = (said.index(), said.meta_view()) else { return };
        let Some(whole) = CachedMeta::prepare(meta, words, index.max_depth(), client) else { return };
        let Ok(mut wholes) = self.metas.try_lock() else { return };
        wholes.misses += 1;
        let place = match wholes.entries.iter().position(Option::is_none) {
            Some(free) => free,
            None if wholes.misses < MISSES_BEFORE_REPLACE => return,
            None => wholes.oldest,
        };
        wholes.entries[place] = Some(whole());
        wholes.oldest = (place + 1) % META_SLOTS;
        wholes.misses = 0;
    }
}

impl CachedMeta {
    /// None if there is more in it than a greeting, or white space. It is
    /// copied by whoever calls what is returned.
    fn prepare<'a>(
        meta: View<'a>,
        words: &ClientViews<'a>,
        max_depth: usize,
        client: &'a Arc<Client>,
    ) -> Option<impl FnOnce() -> CachedMeta> {
        let text = meta.as_bytes();
        // Quotes, colon and comma for each member; the last has a brace instead, and one opens.
        let n_bytes = |key: &str, value: View<'_>| key.len() + value.as_bytes().len() + 4;
        let n_client = words.client_info.map_or(0, |client| n_bytes(meta_key::CLIENT_INFO, client));
        let greeting = n_bytes(meta_key::PROTOCOL_VERSION, words.version)
            + n_bytes(meta_key::CLIENT_CAPABILITIES, words.capabilities)
            + n_client;
        if greeting + 1 != text.len() || text.len() > MAX_CACHED_BYTES {
            return None;
        }
        let place = |value: View<'_>| range_in(text, value.as_bytes());
        let (version, capabilities) = (place(words.version)?, place(words.capabilities)?);
        let client_info = words.client_info.and_then(place);
        let client = Arc::clone(client);
        Some(move || CachedMeta { text: text.into(), max_depth, version, capabilities, client_info, client })
    }
}

/// Where a part of a text is in it; none if it is part of another.
fn range_in(text: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let place = start..start.checked_add(part.len())?;
    std::ptr::eq(text.get(place.clone())?, part).then_some(place)
}

/// Without the text it came in: whoever keeps a client must not keep a message.
fn read_client<'a>(said: &ParamsView<'a>) -> Result<(Cow<'a, str>, Arc<Client>), ProtocolError> {
    let (version, capabilities, info) = said.clone().without_source().client_info()?;
    let named = ProtocolVersion::parse(&version).filter(|version| !version.has_handshake());
    let client = Client { protocol_version: named.unwrap_or(ProtocolVersion::LATEST), capabilities, info };
    Ok((version.into(), Arc::new(client)))
}

/// A greeting as it is said.
#[derive(Clone, Copy)]
pub(super) struct ClientViews<'a> {
    pub(super) version: View<'a>,
    pub(super) capabilities: View<'a>,
    pub(super) client_info: Option<View<'a>>,
}

impl ClientViews<'_> {
    fn parts(&self) -> [&[u8]; 3] {
        let client = self.client_info.as_ref().map_or(&[][..], View::as_bytes);
        [self.version.as_bytes(), self.capabilities.as_bytes(), client]
    }

    /// Not a hash that nobody can break: whoever meets another one in its
    /// place has only to be read again.
    fn slot(&self) -> usize {
        let fold = |sum: usize, part: &[u8]| {
            let (words, rest) = part.as_chunks::<8>();
            let step =
                |sum: usize, word: usize| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
            let sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word) as usize));
            step(sum, rest.len())
        };
        let sum = self.parts().into_iter().fold(0, fold);
        (sum >> (usize::BITS - 8)) % CLIENT_SLOTS
    }

    fn matches(&self, known: &CachedClient) -> bool {
        let [version, capabilities, client] = self.parts();
        let [first, second] = known.offsets;
        known.bytes.get(..first) == Some(version)
            && known.bytes.get(first..second) == Some(capabilities)
            && known.bytes.get(second..) == Some(client)
    }

    fn to_cached(&self, client: &Arc<Client>) -> Option<CachedClient> {
        let words = self.parts().concat();
        if words.len() > MAX_CACHED_BYTES {
            return None;
        }
        let first = self.version.as_bytes().len();
        let second = first + self.capabilities.as_bytes().len();
        Some(CachedClient { bytes: words.into(), offsets: [first, second], client: Arc::clone(client) })
    }
}
