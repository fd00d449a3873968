//! Files that a configuration includes.

use std::path::{Path, PathBuf};

use super::check::merge;
use super::diagnostics::{self, ConfigFiles, Diagnostics};
use super::keys::{Kind, ROOT};
use super::tree::{self, Node, NodeValue};

/// Adds a file to the files of a configuration and returns its number.
pub(super) fn read_file(path: &Path, files: &mut ConfigFiles) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("cannot read {}: {}", path.display(), diagnostics::io_error_message(&error))
    })?;
    Ok(files.add(path.to_owned(), text))
}

/// Merges the included files into the tree. Included files must not include others.
pub(super) fn merge_includes(tree: &mut Node, files: &mut ConfigFiles, diagnostics: &mut Diagnostics) {
    let Some(include) = tree.get("include").cloned() else {
        return;
    };
    let items = match &include.value {
        NodeValue::Text(_) => vec![include],
        NodeValue::List(items) => items.clone(),
        _ => return,
    };
    for item in items {
        let Some(pattern) = item.as_text() else { continue };
        let pattern = files.resolve(item.span.file, pattern);
        if let Some(parent) = pattern.parent().filter(|parent| parent.is_dir()) {
            files.add_folder(parent.to_owned());
        }
        let paths = match expand_pattern(&pattern) {
            Ok(paths) => paths,
            Err(message) => {
                diagnostics.report(item.span, message);
                continue;
            }
        };
        for path in paths {
            if files.contains(&path) {
                continue;
            }
            match read_file(&path, files) {
                Ok(file) => {
                    let mut included = tree::parse(files, file, diagnostics);
                    if let Some(entry) = included.remove("include") {
                        diagnostics.report(entry.span, "an included file must not include others");
                    }
                    merge(tree, included, &Kind::Table(&ROOT), "", diagnostics);
                }
                Err(message) => diagnostics.report(item.span, message),
            }
        }
    }
}

/// Returns the files that match, sorted. A name without wildcards is returned whether or not the file exists; a pattern
/// may match none.
fn expand_pattern(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_pattern = |part: &str| part.contains(['*', '?', '[', '{']);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = path.parent().unwrap_or(Path::new(""));
    if is_pattern(&parent.to_string_lossy()) {
        return Err("only the last part of the path may contain wildcards".into());
    }
    if !is_pattern(&name) {
        return Ok(vec![path.to_owned()]);
    }
    let glob = globset::Glob::new(&name).map_err(|error| error.to_string())?.compile_matcher();
    let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| glob.is_match(entry.file_name()))
        .map(|entry| parent.join(entry.file_name()))
        .collect();
    paths.sort();
    Ok(paths)
}
