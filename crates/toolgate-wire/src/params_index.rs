//! Positions of common parameters, recorded while a request is scanned.
//!
//! Nearly all requests consist of the same few parameters and `_meta` keys. The scan passes over all of them once; readers
//! use this index instead of scanning the text again. Its size is fixed and it copies nothing, so it needs no allocation.
//!
//! An index records positions only. It does not validate values.

use std::sync::Arc;

use crate::codec::ClientCache;
use crate::json::{Key, MemberVisitor, View};
use crate::meta::{Client, meta_key};

/// Positions of the common parameters of a request and of its `_meta` keys.
///
/// Filled by [`read_message_indexed`](crate::read_message_indexed), used by
/// [`ParamsView::with_index`](crate::codec::ParamsView::with_index).
#[derive(Debug, Default)]
pub struct ParamsIndex<'a> {
    /// The whole `params` object.
    object: Option<View<'a>>,
    params: CommonParams<'a>,
    /// The depth limit under which the text was checked.
    max_depth: usize,
    /// The client, if its `_meta` was found in the client cache.
    client: Option<Arc<Client>>,
}

/// Values of the common parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonParams<'a> {
    values: [Option<View<'a>>; 8],
    meta: MetaKeys<'a>,
}

/// Values of the protocol's keys in `_meta`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetaKeys<'a> {
    pub(crate) version: Option<View<'a>>,
    pub(crate) capabilities: Option<View<'a>>,
    pub(crate) client_info: Option<View<'a>>,
    pub(crate) progress_token: Option<View<'a>>,
    pub(crate) log_level: Option<View<'a>>,
}

impl<'a> ParamsIndex<'a> {
    pub(crate) fn set_object(&mut self, params: View<'a>) {
        self.object = Some(params);
    }

    /// Returns the recorded values if `params` is the object that was scanned, not an equal one.
    pub(crate) fn params_of(&self, params: View<'_>) -> Option<&CommonParams<'a>> {
        let same = |indexed: View<'_>| std::ptr::eq(indexed.as_bytes(), params.as_bytes());
        self.object.is_some_and(same).then_some(&self.params)
    }

    /// Returns the depth limit under which the text was checked.
    pub(crate) fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Returns the client, if its `_meta` was found in the client cache.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }
}

/// Records parameters, and looks up `_meta` in the client cache.
pub(crate) struct ParamsVisitor<'a, 'i> {
    pub(crate) index: &'i mut ParamsIndex<'a>,
    pub(crate) client_cache: Option<&'i ClientCache>,
}

impl<'a> CommonParams<'a> {
    /// Scans a `params` object that has no index.
    pub(crate) fn from_object(object: View<'a>) -> Self {
        let mut params = Self::default();
        for (key, value) in object.pairs() {
            if let Some(slot) = Key::from_view(key).find_slot(Self::slot_of) {
                params.set(slot, value);
            }
        }
        for (key, value) in params.values[META_SLOT].into_iter().flat_map(|meta| meta.pairs()) {
            if let Some(slot) = params.meta.slot(Key::from_view(key)) {
                params.meta.visit(slot, value);
            }
        }
        params
    }

    #[inline(always)]
    fn set(&mut self, slot: usize, value: View<'a>) {
        if let Some(entry) = self.values.get_mut(slot) {
            *entry = Some(value);
        }
    }

    /// Returns the slot of a common parameter.
    #[inline(always)]
    pub(crate) fn slot_of(name: &[u8]) -> Option<usize> {
        Some(match name {
            b"_meta" => META_SLOT,
            b"name" => 1,
            b"arguments" => 2,
            b"uri" => 3,
            b"cursor" => 4,
            b"inputResponses" => 5,
            b"requestState" => 6,
            b"task" => 7,
            _ => return None,
        })
    }

    /// Returns the value in a slot from [`CommonParams::slot_of`].
    #[inline(always)]
    pub(crate) fn get(&self, slot: usize) -> Option<View<'a>> {
        self.values.get(slot).copied().flatten()
    }

    /// Returns the protocol's keys in `_meta`, if it is an object.
    #[inline]
    pub(crate) fn meta(&self) -> Option<&MetaKeys<'a>> {
        let meta = self.values[META_SLOT]?;
        meta.is_object().then_some(&self.meta)
    }
}

const META_SLOT: usize = 0;

/// The common prefix of the protocol's keys, compared once.
const META_KEY_PREFIX: &[u8] = b"io.modelcontextprotocol/";

/// Returns a key without the common prefix.
const fn without_prefix(key: &str) -> &[u8] {
    key.as_bytes().split_at(META_KEY_PREFIX.len()).1
}

impl<'a> MemberVisitor<'a> for ParamsVisitor<'a, '_> {
    type Nested = MetaKeys<'a>;

    #[inline(always)]
    fn slot(&self, key: Key<'a>) -> Option<usize> {
        key.find_slot(CommonParams::slot_of)
    }

    #[inline(always)]
    fn nested(&mut self, slot: usize) -> Option<&mut MetaKeys<'a>> {
        (slot == META_SLOT).then_some(&mut self.index.params.meta)
    }

    #[inline(always)]
    fn visit(&mut self, slot: usize, value: View<'a>) {
        self.index.params.set(slot, value);
    }

    fn skip_known(&mut self, slot: usize, rest: &'a [u8], max_depth: usize) -> Option<usize> {
        if slot != META_SLOT {
            return None;
        }
        self.index.max_depth = max_depth;
        let (meta, n_bytes, client) = self.client_cache?.lookup_meta(rest, max_depth)?;
        self.index.params.meta = meta;
        self.index.client = Some(client);
        Some(n_bytes)
    }
}

impl<'a> MemberVisitor<'a> for MetaKeys<'a> {
    type Nested = ();

    #[inline(always)]
    fn slot(&self, key: Key<'a>) -> Option<usize> {
        const VERSION: &[u8] = without_prefix(meta_key::PROTOCOL_VERSION);
        const CAPABILITIES: &[u8] = without_prefix(meta_key::CLIENT_CAPABILITIES);
        const CLIENT: &[u8] = without_prefix(meta_key::CLIENT_INFO);
        const LEVEL: &[u8] = without_prefix(meta_key::LOG_LEVEL);
        const PROGRESS: &[u8] = meta_key::PROGRESS_TOKEN.as_bytes();
        key.find_slot(
            #[inline(always)]
            |name| match name.strip_prefix(META_KEY_PREFIX) {
                Some(VERSION) => Some(0),
                Some(CAPABILITIES) => Some(1),
                Some(CLIENT) => Some(2),
                None if name == PROGRESS => Some(3),
                Some(LEVEL) => Some(4),
                _ => None,
            },
        )
    }

    fn nested(&mut self, _: usize) -> Option<&mut ()> {
        None
    }

    #[inline(always)]
    fn visit(&mut self, slot: usize, value: View<'a>) {
        let field = match slot {
            0 => &mut self.version,
            1 => &mut self.capabilities,
            2 => &mut self.client_info,
            3 => &mut self.progress_token,
            _ => &mut self.log_level,
        };
        *field = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_keys_share_a_prefix() {
        for key in [
            meta_key::PROTOCOL_VERSION,
            meta_key::CLIENT_CAPABILITIES,
            meta_key::CLIENT_INFO,
            meta_key::LOG_LEVEL,
        ] {
            assert!(key.as_bytes().starts_with(META_KEY_PREFIX), "{key}");
        }
    }
}
