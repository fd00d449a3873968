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
use std::sync::{Arc, Mutex};

use super::greeting::{Said, read_date};
use crate::json::View;
use crate::meta::Client;
use crate::{Edition, Fault};

/// How many different greetings are remembered.
const N_PLACES: usize = 16;

/// The longest greeting that is remembered, in bytes.
const LONGEST: usize = 1024;

/// Clients that introduced themselves lately.
///
/// ```
/// # use toolgate_wire::codec::{Greetings, Said};
/// # use toolgate_wire::Raw;
/// let params = Raw::from(serde_json::json!({ "_meta": {
///     "io.modelcontextprotocol/protocolVersion": "2026-07-28",
///     "io.modelcontextprotocol/clientCapabilities": {},
/// } }));
/// let greetings = Greetings::default();
/// let (version, client) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert_eq!((&*version, client.edition.date()), ("2026-07-28", "2026-07-28"));
/// let (_, again) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert!(std::sync::Arc::ptr_eq(&client, &again));
/// ```
#[derive(Debug, Default)]
pub struct Greetings {
    places: [Mutex<Option<Known>>; N_PLACES],
}

/// One greeting, as it was said and as it was understood.
#[derive(Debug)]
struct Known {
    words: Box<[u8]>,
    /// Where the capabilities begin in `words`, and where the client does.
    cuts: [usize; 2],
    client: Arc<Client>,
}

impl Greetings {
    /// What a request says of its sender: the edition as it spelled it, and the
    /// rest. The edition of the client is the one it names if that needs no
    /// handshake, and the newest otherwise: whether it is served is for others
    /// to judge.
    ///
    /// # Errors
    /// As [`Said::greeting`].
    pub fn meet<'a>(&self, said: &Said<'a>) -> Result<(Cow<'a, str>, Arc<Client>), Fault> {
        let Some(words) = said.words() else {
            return read(said);
        };
        let Ok(mut place) = self.places[words.place()].try_lock() else {
            return read(said);
        };
        if let Some(known) = &*place
            && words.are(known)
            && let Some(version) = read_date(words.version)
        {
            return Ok((version, Arc::clone(&known.client)));
        }
        let (version, client) = read(said)?;
        if let Some(known) = words.keep(&client) {
            *place = Some(known);
        }
        Ok((version, client))
    }
}

/// Without the text it came in: whoever keeps a client must not keep a message.
fn read<'a>(said: &Said<'a>) -> Result<(Cow<'a, str>, Arc<Client>), Fault> {
    let (version, capabilities, info) = said.apart().greeting()?;
    let named = Edition::of(&version).filter(|edition| !edition.shakes_hands());
    let client = Client { edition: named.unwrap_or(Edition::NEWEST), capabilities, info };
    Ok((version.into(), Arc::new(client)))
}

/// A greeting as it is said.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) version: View<'a>,
    pub(super) capabilities: View<'a>,
    pub(super) client: Option<View<'a>>,
}

impl Words<'_> {
    fn parts(&self) -> [&[u8]; 3] {
        let client = self.client.as_ref().map_or(&[][..], View::as_bytes);
        [self.version.as_bytes(), self.capabilities.as_bytes(), client]
    }

    /// Not a hash that nobody can break: whoever meets another one in its
    /// place has only to be read again.
    fn place(&self) -> usize {
        let fold = |sum: usize, part: &[u8]| {
            let (words, rest) = part.as_chunks::<8>();
            let step =
                |sum: usize, word: usize| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
            let sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word) as usize));
            step(sum, rest.len())
        };
        let sum = self.parts().into_iter().fold(0, fold);
        (sum >> (usize::BITS - 8)) % N_PLACES
    }

    fn are(&self, known: &Known) -> bool {
        let [version, capabilities, client] = self.parts();
        let [first, second] = known.cuts;
        known.words.get(..first) == Some(version)
            && known.words.get(first..second) == Some(capabilities)
            && known.words.get(second..) == Some(client)
    }

    fn keep(&self, client: &Arc<Client>) -> Option<Known> {
        let words = self.parts().concat();
        if words.len() > LONGEST {
            return None;
        }
        let first = self.version.as_bytes().len();
        let second = first + self.capabilities.as_bytes().len();
        Some(Known { words: words.into(), cuts: [first, second], client: Arc::clone(client) })
    }
}
