//! Caches recently parsed client information, so that repeated `_meta` is not parsed again.
//!
//! Without a handshake, a client sends the same `_meta` with every request. It is compared byte by byte with cached text.
//! Equal text has equal meaning, so the cache cannot go stale and needs no invalidation.
//!
//! Lookups never wait: if another thread holds a slot, the text is parsed as if it were new. Memory is bounded: there are
//! few slots, only short texts are cached, and an entry does not reference the message it came from.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::params_view::{ParamsView, read_version_str};
use crate::json::{View, view_from_trusted};
use crate::meta::{Client, meta_key};
use crate::params_index::{MetaKeys, ParamsIndex};
use crate::{ProtocolError, ProtocolVersion};

/// The number of cached clients.
const CLIENT_SLOTS: usize = 16;

/// The number of clients that are recognized while a message is scanned. The scan compares with each, so they are few.
const META_SLOTS: usize = 4;

/// The number of misses before such an entry is replaced: with many more clients than slots, replacing an entry on each
/// miss would cost time without making hits more likely.
const MISSES_BEFORE_REPLACE: usize = 64;

/// The maximum size of a cached text, in bytes.
const MAX_CACHED_BYTES: usize = 1024;

/// A cache of clients by the `_meta` of their requests.
///
/// ```
/// # use toolgate_wire::codec::{ClientCache, ParamsView};
/// # use toolgate_wire::{ProtocolVersion, RawJson};
/// let params = RawJson::from(serde_json::json!({ "_meta": {
///     "io.modelcontextprotocol/protocolVersion": ProtocolVersion::LATEST.as_str(),
///     "io.modelcontextprotocol/clientCapabilities": {},
/// } }));
/// let cache = ClientCache::default();
/// let (version, client) = cache.resolve(&ParamsView::new(Some(&params)).unwrap()).unwrap();
/// assert_eq!((&*version, client.protocol_version), (ProtocolVersion::LATEST.as_str(), ProtocolVersion::LATEST));
/// let (_, again) = cache.resolve(&ParamsView::new(Some(&params)).unwrap()).unwrap();
/// assert!(std::sync::Arc::ptr_eq(&client, &again));
/// ```
#[derive(Debug, Default)]
pub struct ClientCache {
    clients: [Mutex<Option<CachedClient>>; CLIENT_SLOTS],
    metas: Mutex<MetaCache>,
}

/// Clients whose `_meta` contains nothing but client information, for
/// [`read_message_cached`](crate::read_message_cached).
#[derive(Debug, Default)]
struct MetaCache {
    entries: [Option<CachedMeta>; META_SLOTS],
    /// Lookups since the last replacement.
    misses: usize,
    oldest: usize,
}

/// A checked `_meta` object, and the positions of its members.
#[derive(Debug)]
struct CachedMeta {
    text: Box<[u8]>,
    max_depth: usize,
    version: Range<usize>,
    capabilities: Range<usize>,
    client_info: Option<Range<usize>>,
    client: Arc<Client>,
}

/// The unparsed and parsed form of client information.
#[derive(Debug)]
struct CachedClient {
    bytes: Box<[u8]>,
    /// The offsets in `bytes` where the capabilities and the client info begin.
    offsets: [usize; 2],
    client: Arc<Client>,
}

impl ClientCache {
    /// Returns the protocol version of a request as sent, and its client. The version of the client is the sent one if
    /// that has no handshake, else the newest; whether it is supported is decided elsewhere.
    ///
    /// # Errors
    /// As [`ParamsView::client_info`].
    pub fn resolve<'a>(&self, params: &ParamsView<'a>) -> Result<(Cow<'a, str>, Arc<Client>), ProtocolError> {
        let Some(views) = params.client_views() else {
            return read_client(params);
        };
        let indexed_client = params.index().and_then(ParamsIndex::client);
        if let (Some(client), Some(version)) = (indexed_client, read_version_str(views.version)) {
            return Ok((version, Arc::clone(client)));
        }
        let Ok(mut slot) = self.clients[views.slot()].try_lock() else {
            return read_client(params);
        };
        if let Some(entry) = &*slot
            && views.matches(entry)
            && let Some(version) = read_version_str(views.version)
        {
            self.insert_meta(params, &views, &entry.client);
            return Ok((version, Arc::clone(&entry.client)));
        }
        let (version, client) = read_client(params)?;
        if let Some(entry) = views.to_cached(&client) {
            *slot = Some(entry);
        }
        Ok((version, client))
    }
}

impl ClientCache {
    /// Looks up the `_meta` at the beginning of `rest`. Returns the positions of its members, its length and the client.
    pub(crate) fn lookup_meta<'a>(
        &self,
        rest: &'a [u8],
        max_depth: usize,
    ) -> Option<(MetaKeys<'a>, usize, Arc<Client>)> {
        let metas = self.metas.try_lock().ok()?;
        let same = |entry: &&CachedMeta| entry.max_depth == max_depth && rest.starts_with(&entry.text);
        let entry = metas.entries.iter().flatten().find(same)?;
        let view = |range: &Range<usize>| rest.get(range.clone()).map(view_from_trusted);
        let meta = MetaKeys {
            version: view(&entry.version),
            capabilities: view(&entry.capabilities),
            client_info: entry.client_info.as_ref().and_then(view),
            ..MetaKeys::default()
        };
        Some((meta, entry.text.len(), Arc::clone(&entry.client)))
    }

    /// Caches a `_meta` that was checked as part of a message, if it contains nothing but client information.
    fn insert_meta(&self, params: &ParamsView<'_>, views: &ClientViews<'_>, client: &Arc<Client>) {
        let (Some(index), Some(meta)) = (params.index(), params.meta_view()) else { return };
        let Some(create_entry) = CachedMeta::prepare(meta, views, index.max_depth(), client) else { return };
        let Ok(mut metas) = self.metas.try_lock() else { return };
        metas.misses += 1;
        let slot = match metas.entries.iter().position(Option::is_none) {
            Some(free) => free,
            None if metas.misses < MISSES_BEFORE_REPLACE => return,
            None => metas.oldest,
        };
        metas.entries[slot] = Some(create_entry());
        metas.oldest = (slot + 1) % META_SLOTS;
        metas.misses = 0;
    }
}

impl CachedMeta {
    /// Returns `None` if `_meta` contains anything else, or whitespace. The text is copied when the returned function is
    /// called.
    fn prepare<'a>(
        meta: View<'a>,
        views: &ClientViews<'a>,
        max_depth: usize,
        client: &'a Arc<Client>,
    ) -> Option<impl FnOnce() -> CachedMeta> {
        let text = meta.as_bytes();
        // Each member has two quotes, a colon and a comma. The last has the closing brace instead of the comma, and the
        // opening brace is one more byte.
        let n_bytes = |key: &str, value: View<'_>| key.len() + value.as_bytes().len() + 4;
        let n_client = views.client_info.map_or(0, |client| n_bytes(meta_key::CLIENT_INFO, client));
        let client_bytes = n_bytes(meta_key::PROTOCOL_VERSION, views.version)
            + n_bytes(meta_key::CLIENT_CAPABILITIES, views.capabilities)
            + n_client;
        if client_bytes + 1 != text.len() || text.len() > MAX_CACHED_BYTES {
            return None;
        }
        let range = |value: View<'_>| range_in(text, value.as_bytes());
        let (version, capabilities) = (range(views.version)?, range(views.capabilities)?);
        let client_info = views.client_info.and_then(range);
        let client = Arc::clone(client);
        Some(move || CachedMeta { text: text.into(), max_depth, version, capabilities, client_info, client })
    }
}

/// Returns the range of `part` in `text`, or `None` if it is not a slice of it.
fn range_in(text: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    std::ptr::eq(text.get(range.clone())?, part).then_some(range)
}

/// Parses the client into values that do not share the text, since a cached client must not keep a message alive.
fn read_client<'a>(params: &ParamsView<'a>) -> Result<(Cow<'a, str>, Arc<Client>), ProtocolError> {
    let (version, capabilities, info) = params.clone().without_source().client_info()?;
    let known = ProtocolVersion::parse(&version).filter(|version| !version.has_handshake());
    let client = Client { protocol_version: known.unwrap_or(ProtocolVersion::LATEST), capabilities, info };
    Ok((version.into(), Arc::new(client)))
}

/// The unparsed client information of a request.
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

    /// Not a collision-resistant hash: a collision only costs parsing.
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

    fn matches(&self, entry: &CachedClient) -> bool {
        let [version, capabilities, client] = self.parts();
        let [first, second] = entry.offsets;
        entry.bytes.get(..first) == Some(version)
            && entry.bytes.get(first..second) == Some(capabilities)
            && entry.bytes.get(second..) == Some(client)
    }

    fn to_cached(self, client: &Arc<Client>) -> Option<CachedClient> {
        let bytes = self.parts().concat();
        if bytes.len() > MAX_CACHED_BYTES {
            return None;
        }
        let first = self.version.as_bytes().len();
        let second = first + self.capabilities.as_bytes().len();
        Some(CachedClient { bytes: bytes.into(), offsets: [first, second], client: Arc::clone(client) })
    }
}
