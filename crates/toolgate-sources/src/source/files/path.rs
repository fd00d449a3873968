//! Paths below a root: which are safe, how they are opened, and their media types.

use std::fs::File;
use std::path::Path;

/// Accepts only paths that mean the same on every operating system: relative, without `..`, devices, streams or
/// aliases.
pub(super) fn is_safe_path(path: &str) -> bool {
    path.len() <= 4096 && !path.is_empty() && path.split('/').all(is_safe_segment)
}

fn is_safe_segment(part: &str) -> bool {
    const RESERVED_NAMES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let stem = part.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_port = matches!(stem.get(..3), Some("com" | "lpt"))
        && stem.len() == 4
        && stem.ends_with(|last: char| last.is_ascii_digit());
    !(part.is_empty()
        || part.len() > 255
        || part == "."
        || part == ".."
        || part.contains(['\\', ':', '\0'])
        || part.chars().any(char::is_control)
        || part.ends_with(['.', ' '])
        || RESERVED_NAMES.contains(&stem.as_str())
        || is_port)
}

/// Opens a file below a folder without leaving it. Returns `None` if that is not possible.
#[cfg(unix)]
pub(super) fn open_below(root: &Path, path: &str) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open, openat};

    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    // Opens pipes without waiting for a writer.
    let file = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let root = open(root, folder, Mode::empty()).ok()?;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&root, path, file, Mode::empty(), beneath) {
            Ok(opened) => return Some(opened.into()),
            // Old kernels and some sandboxes lack `openat2`; the fallback is as safe.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            Err(_) => return None,
        }
    }
    // Component by component, and none may be a link.
    let mut directory = root;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { folder } else { file };
        directory = openat(&directory, part, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    }
    Some(directory.into())
}

#[cfg(not(unix))]
pub(super) fn open_below(root: &Path, path: &str) -> Option<File> {
    let root = root.canonicalize().ok()?;
    let found = root.join(path).canonicalize().ok()?;
    found.starts_with(&root).then(|| File::open(found).ok()).flatten()
}

/// The media type for a file extension.
pub fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" | "log" | "text" => "text/plain",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "toml" => "application/toml",
        "yaml" | "yml" => "application/yaml",
        "xml" => "application/xml",
        "rs" => "text/x-rust",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        "sql" => "application/sql",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}
