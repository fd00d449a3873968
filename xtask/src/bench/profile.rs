//! The release profile of the library, for everybody who is measured beside it.
//!
//! It stands in one place, the `Cargo.toml` at the root. The workspaces of `load/` have none of their own: cargo takes
//! it from the environment, so that like is compared with like whatever becomes of it.

use std::path::Path;

/// Names and values of variables that cargo reads. What the environment has already is left alone: it holds for all.
pub(crate) fn variables(root: &Path) -> Result<Vec<(String, String)>, String> {
    let path = root.join("Cargo.toml");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let variables = parse(&text).into_iter();
    let variables = variables.map(|(key, value)| {
        (format!("CARGO_PROFILE_RELEASE_{}", key.to_uppercase().replace('-', "_")), value)
    });
    Ok(variables.filter(|(name, _)| std::env::var_os(name).is_none()).collect())
}

/// The same in words.
pub(crate) fn words(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let keys: Vec<String> = parse(&text).iter().map(|(key, value)| format!("{key} = {value}")).collect();
    keys.join(", ")
}

/// Keys and values of the section, without quotes.
fn parse(manifest: &str) -> Vec<(String, String)> {
    let section = manifest.lines().map(str::trim).skip_while(|line| *line != "[profile.release]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| {
            let value = value.split('#').next().unwrap_or_default().trim().trim_matches('"');
            (key.trim().to_owned(), value.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().unwrap_or(manifest)
    }

    #[test]
    fn the_section_is_read() {
        let manifest = "[a]\nlto = 1\n[profile.release]\nlto = \"fat\" # all of it\n# why\ncodegen-units = 1\n\n[b]\nx = 2\n";
        let expected = [("lto", "fat"), ("codegen-units", "1")];
        assert_eq!(parse(manifest), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_root_has_one_and_nobody_in_load_has_another() {
        assert!(variables(root()).is_ok_and(|variables| !variables.is_empty()));
        let peers = std::fs::read_dir(root().join("load/peers")).unwrap();
        let manifests = peers.flatten().map(|peer| peer.path().join("Cargo.toml"));
        for manifest in manifests.chain([root().join("load/Cargo.toml")]).filter(|manifest| manifest.exists())
        {
            let text = std::fs::read_to_string(&manifest).unwrap();
            assert!(!text.contains("[profile."), "{} has a profile of its own", manifest.display());
        }
    }
}
