//! Pagination of lists with stateless cursors.
//!
//! A cursor is the encrypted key of the last item of the previous page: every process can continue from it, it survives changes
//! of the list, and forged cursors are detected.

use toolgate_wire::model::{CacheHint, CacheScope, Page};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::{Keyed, OrderedMap, View};
use crate::seal::Seal;

/// An entry that can be listed.
pub(crate) trait ListEntry: Keyed {
    type Item;

    fn item(&self) -> std::sync::Arc<Self::Item>;

    fn is_visible(&self, view: View<'_>) -> bool;
}

/// Splits lists into pages.
#[derive(Clone)]
pub(crate) struct Pager {
    pub(crate) size: usize,
    pub(crate) cache: CacheHint,
    pub(crate) seal: Seal,
}

impl std::fmt::Debug for Pager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pager").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Pager {
    /// Returns the page after `cursor`. `list` binds cursors to their list.
    pub(crate) fn page<T: ListEntry>(
        &self,
        list: &str,
        entries: &OrderedMap<T>,
        cursor: Option<&str>,
        view: View<'_>,
    ) -> Result<Page<T::Item>, ProtocolError> {
        let rest = match cursor {
            None => entries.as_slice(),
            Some(cursor) => {
                let key = self.decode_cursor(list, cursor)?;
                // If the item was removed meanwhile, its position is unknown and the client has to start again.
                let index = entries.index_of(&key).ok_or_else(unknown_cursor)?;
                &entries.as_slice()[index + 1..]
            }
        };
        if view.is_unrestricted() {
            let shown = &rest[..rest.len().min(self.size)];
            let next = shown
                .last()
                .filter(|_| shown.len() < rest.len())
                .map(|last| self.encode_cursor(list, last.key()));
            let items = shown.iter().map(|entry| entry.item()).collect();
            return Ok(Page { items, next_cursor: next, cache: self.cache });
        }
        let (mut items, mut last, mut next) = (Vec::new(), None, None);
        for entry in rest.iter().filter(|entry| entry.is_visible(view)) {
            if items.len() == self.size {
                next = last.map(|last| self.encode_cursor(list, last));
                break;
            }
            items.push(entry.item());
            last = Some(entry.key());
        }
        // Filtered by caller, so the page must not be in a shared cache.
        let cache = CacheHint { scope: CacheScope::Private, ..self.cache };
        Ok(Page { items, next_cursor: next, cache })
    }

    /// Returns the cursor to the items after this key.
    fn encode_cursor(&self, list: &str, key: &str) -> String {
        self.seal.seal(list.as_bytes(), key.as_bytes())
    }

    /// Returns the key that a cursor contains.
    fn decode_cursor(&self, list: &str, cursor: &str) -> Result<String, ProtocolError> {
        let key = self.seal.open(list.as_bytes(), cursor).map_err(|_| unknown_cursor())?;
        String::from_utf8(key).map_err(|_| unknown_cursor())
    }
}

fn unknown_cursor() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::InvalidCursor, "unknown cursor; start again without one")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use toolgate_wire::model::ToolHints;

    use super::*;

    #[derive(Debug)]
    struct Thing(String);

    impl Keyed for Thing {
        fn key(&self) -> &str {
            &self.0
        }
    }

    impl ListEntry for Thing {
        type Item = String;

        fn item(&self) -> Arc<String> {
            Arc::new(self.0.clone())
        }

        fn is_visible(&self, view: View<'_>) -> bool {
            view.shows_tool(&self.0, &ToolHints::default())
        }
    }

    fn entries(count: usize) -> OrderedMap<Thing> {
        let mut map = OrderedMap::default();
        for number in 0..count {
            map.insert(Thing(format!("thing {number}")));
        }
        map
    }

    const UNRESTRICTED: View<'_> = View([None, None]);

    fn page(
        pager: &Pager,
        list: &str,
        map: &OrderedMap<Thing>,
        cursor: Option<&str>,
    ) -> Result<Page<String>, ProtocolError> {
        pager.page(list, map, cursor, UNRESTRICTED)
    }

    fn pager(size: usize) -> Pager {
        Pager { size, cache: CacheHint::default(), seal: Seal::random() }
    }

    proptest! {
        #[test]
        fn all_pages_together_are_the_list(count in 0_usize..60, size in 1_usize..20) {
            let (map, pager) = (entries(count), pager(size));
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = page(&pager, "things", &map, cursor.as_deref()).unwrap();
                prop_assert!(page.items.len() <= size);
                seen.extend(page.items.iter().map(|item| item.to_string()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let all: Vec<_> = map.iter().map(|thing| thing.0.clone()).collect();
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn a_forged_cursor_is_rejected(cursor in ".{0,80}") {
            prop_assert!(page(&pager(1), "things", &entries(3), Some(&cursor)).is_err());
        }
    }

    #[test]
    fn a_cursor_is_bound_to_its_list() {
        let pager = pager(1);
        let next = page(&pager, "things", &entries(3), None).unwrap().next_cursor;
        assert!(page(&pager, "things", &entries(3), next.as_deref()).is_ok());
        assert!(page(&pager, "others", &entries(3), next.as_deref()).is_err());
    }

    #[test]
    fn pages_contain_only_visible_items() {
        let profile = crate::profile::Profile::new("odd").include_tools(["*1", "*3", "*5"]);
        let (map, pager) = (entries(7), pager(2));
        let list =
            |cursor: Option<&str>| pager.page("things", &map, cursor, View([None, Some(&profile)])).unwrap();
        let first = list(None);
        let second = list(first.next_cursor.as_deref());
        let texts = |page: &Page<String>| page.items.iter().map(|item| item.to_string()).collect::<Vec<_>>();
        assert_eq!(texts(&first), ["thing 1", "thing 3"]);
        assert_eq!((texts(&second), second.next_cursor), (vec!["thing 5".to_owned()], None));
    }
}
