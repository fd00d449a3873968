//! Files beside a configuration: whether they are still as they were.

use std::fs::Permissions;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file, and whether it has changed since somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) path: PathBuf,
    /// When it was written last, its size, and who may use it; none if it is not there. What is in a folder is not its
    /// state.
    state: Option<(Option<SystemTime>, u64, Permissions)>,
}

impl FileStamp {
    pub(crate) fn new(path: &Path) -> FileStamp {
        let state = path.metadata().ok().map(|about| {
            let (written, size) =
                if about.is_dir() { (None, 0) } else { (about.modified().ok(), about.len()) };
            (written, size, about.permissions())
        });
        FileStamp { path: path.to_owned(), state }
    }

    /// The file, and what of the way to it is not there either.
    pub(super) fn with_missing_ancestors(path: &Path) -> Vec<FileStamp> {
        let mut way = Vec::new();
        for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            let one = FileStamp::new(part);
            let is_there = one.state.is_some();
            way.push(one);
            if is_there {
                break;
            }
        }
        way
    }

    /// Takes it as it is now.
    pub(crate) fn refresh(&mut self) {
        *self = FileStamp::new(&self.path);
    }

    pub(crate) fn has_changed(&self) -> bool {
        FileStamp::new(&self.path) != *self
    }

    /// The folder that it is in.
    pub(crate) fn folder(&self) -> PathBuf {
        parent_folder(&self.path)
    }
}

/// The folder that a file is in.
pub(crate) fn parent_folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
