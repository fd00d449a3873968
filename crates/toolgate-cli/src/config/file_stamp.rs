//! Detects changes of files that a configuration names.

use std::fs::Permissions;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The state of a file or folder at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) path: PathBuf,
    /// Modification time, size and permissions; `None` if the file does not exist. A folder has permissions only: its
    /// entries are not part of its state.
    state: Option<(Option<SystemTime>, u64, Permissions)>,
}

impl FileStamp {
    pub(crate) fn new(path: &Path) -> FileStamp {
        let state = path.metadata().ok().map(|metadata| {
            let (modified, size) =
                if metadata.is_dir() { (None, 0) } else { (metadata.modified().ok(), metadata.len()) };
            (modified, size, metadata.permissions())
        });
        FileStamp { path: path.to_owned(), state }
    }

    /// The stamps of a path and of its missing ancestors, up to the first one that exists.
    pub(super) fn with_missing_ancestors(path: &Path) -> Vec<FileStamp> {
        let mut stamps = Vec::new();
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            let stamp = FileStamp::new(path);
            let exists = stamp.state.is_some();
            stamps.push(stamp);
            if exists {
                break;
            }
        }
        stamps
    }

    /// Records the current state.
    pub(crate) fn refresh(&mut self) {
        *self = FileStamp::new(&self.path);
    }

    pub(crate) fn has_changed(&self) -> bool {
        FileStamp::new(&self.path) != *self
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> PathBuf {
        parent_folder(&self.path)
    }
}

/// The parent folder of a path; `.` if it has none.
pub(crate) fn parent_folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
