//! URI templates: parsing and matching terminate for any text, and a match only has variables of the template.

#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::uri_template::UriTemplate;

fuzz_target!(|data: &str| {
    let (template, uri) = data.split_once('\n').unwrap_or((data, ""));
    let Ok(template) = UriTemplate::parse(template) else { return };
    if let Some(values) = template.match_uri(uri) {
        for (name, _) in values {
            assert!(template.names().any(|known| known == name));
        }
    }
});
