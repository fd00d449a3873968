//! Where the members of a request are, noted while its text is checked.
//!
//! Nearly every request is made of the same few parameters and says the same
//! few things in `_meta`. The scan passes all of them once; whoever reads the
//! request afterwards looks here instead of walking over the text again. Room
//! is fixed and holds no copy: an index costs no allocation.
//!
//! An index says where things are, never whether they are right.

use std::sync::Arc;

use crate::codec::ClientCache;
use crate::json::{Key, MemberVisitor, View};
use crate::meta::{Client, meta_key};

/// Where the common parameters of one request are, and its `_meta`.
///
/// Made by [`read_noting`](crate::read_noting), used by
/// [`Said::noted`](crate::codec::Said::noted).
#[derive(Debug, Default)]
pub struct ParamsIndex<'a> {
    /// The whole of the parameters.
    object: Option<View<'a>>,
    params: CommonParams<'a>,
    /// How deep the text may be, as far as it was checked.
    max_depth: usize,
    /// Who greets, if it is somebody we know.
    client: Option<Arc<Client>>,
}

/// The common parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonParams<'a> {
    values: [Option<View<'a>>; 8],
    meta: MetaKeys<'a>,
}

/// The keys of the protocol in `_meta`.
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

    /// What was noted of these parameters; none if they are not the very ones
    /// that were read.
    pub(crate) fn params_of(&self, params: View<'_>) -> Option<&CommonParams<'a>> {
        let same = |noted: View<'_>| std::ptr::eq(noted.as_bytes(), params.as_bytes());
        self.object.is_some_and(same).then_some(&self.params)
    }

    /// How deep the text may be, as far as it was checked.
    pub(crate) fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Who greets, if that was known.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }
}

/// Notes parameters, and looks up greetings that were heard before.
pub(crate) struct ParamsVisitor<'a, 'i> {
    pub(crate) index: &'i mut ParamsIndex<'a>,
    pub(crate) client_cache: Option<&'i ClientCache>,
}

impl<'a> CommonParams<'a> {
    /// Walks over parameters that nobody noted.
    pub(crate) fn from_object(object: View<'a>) -> Self {
        let mut params = Self::default();
        for (key, value) in object.pairs() {
            if let Some(place) = Key::from_view(key).find_slot(Self::slot_of) {
                params.set(place, value);
            }
        }
        for (key, value) in params.values[META_SLOT].into_iter().flat_map(|meta| meta.pairs()) {
            if let Some(place) = params.meta.slot(Key::from_view(key)) {
                params.meta.visit(place, value);
            }
        }
        params
    }

    #[inline(always)]
    fn set(&mut self, place: usize, value: View<'a>) {
        if let Some(slot) = self.values.get_mut(place) {
            *slot = Some(value);
        }
    }

    /// The place of a parameter, if it is a common one.
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

    /// The value at a place that [`Params::place_of`] gave.
    #[inline(always)]
    pub(crate) fn get(&self, place: usize) -> Option<View<'a>> {
        self.values.get(place).copied().flatten()
    }

    /// What `_meta` says, if it is an object.
    #[inline]
    pub(crate) fn meta(&self) -> Option<&MetaKeys<'a>> {
        let meta = self.values[META_SLOT]?;
        meta.is_object().then_some(&self.meta)
    }
}

const META_SLOT: usize = 0;

/// What most keys of the protocol begin with: compared once.
const META_KEY_PREFIX: &[u8] = b"io.modelcontextprotocol/";

/// The rest of such a key.
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
    fn nested(&mut self, place: usize) -> Option<&mut MetaKeys<'a>> {
        (place == META_SLOT).then_some(&mut self.index.params.meta)
    }

    #[inline(always)]
    fn visit(&mut self, place: usize, value: View<'a>) {
        self.index.params.set(place, value);
    }

    fn skip_known(&mut self, place: usize, rest: &'a [u8], max_depth: usize) -> Option<usize> {
        if place != META_SLOT {
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
    fn visit(&mut self, place: usize, value: View<'a>) {
        let slot = match place {
            0 => &mut self.version,
            1 => &mut self.capabilities,
            2 => &mut self.client_info,
            3 => &mut self.progress_token,
            _ => &mut self.log_level,
        };
        *slot = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_protocol_begin_alike() {
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
