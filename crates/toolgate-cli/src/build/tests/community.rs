//! The pack `buddyboss`, and users of a WordPress site.

use super::*;

/// A configuration with these settings of the pack and of `auth`.
fn file(pack: &str, auth: &str) -> String {
    format!(
        "[security.egress]\nallow = [\"127.0.0.1\"]\n\
         [connections.site]\nhttp = \"http://127.0.0.1:1/wp-json\"\nauth = {{ forward = true }}\n\
         {auth}\n[servers.s.packs.buddyboss]\non = \"site\"\n{pack}\n"
    )
}

fn tools(pack: &str) -> Vec<String> {
    let server = server(&TempFolder::new(), &file(pack, ""));
    let mut names: Vec<String> = server.tools().iter().map(|tool| tool.name.clone()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_select_tools_of_the_pack() {
    assert_eq!(tools("").len(), 61, "courses and extras are off unless they are named");
    assert_eq!(tools("phases = [\"core\"]").len(), 37);
    assert_eq!(tools("phases = [\"buddyboss\"]").len(), 18);
    assert_eq!(tools("phases = [\"core\", \"buddyboss\", \"advanced\", \"learndash\"]").len(), 65);
    assert_eq!(tools("phases = [\"extra\"]").len(), 28);
    assert_eq!(tools("include = [\"*_group\"]\nexclude = [\"*_delete_*\"]").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acting_user_is_not_an_argument() {
    let phases = "phases = [\"core\", \"buddyboss\", \"advanced\", \"learndash\", \"extra\"]";
    let server = server(&TempFolder::new(), &file(phases, ""));
    for tool in server.tools() {
        let schema = tool.input_schema.to_value();
        for name in ["sender_id", "creator_id", "initiator_id", "inviter_id"] {
            assert!(schema["properties"].get(name).is_none(), "{}: {name}", tool.name);
        }
        assert!(tool.description.as_ref().is_some_and(|text| text.ends_with('.')), "{}", tool.name);
        assert!(tool.hints.read_only.is_some() && tool.hints.open_world == Some(false), "{}", tool.name);
        if tool.name.contains("_delete_") || tool.name.contains("_remove_") {
            assert_eq!(tool.hints.destructive, Some(true), "{}", tool.name);
        }
    }
    for own in [
        "list_message_threads",
        "list_notifications",
        "list_friends",
        "create_activity",
        "list_friend_requests",
    ] {
        let tool = server.get_tool(&format!("buddyboss_{own}")).unwrap();
        assert!(tool.input_schema.to_value()["properties"].get("user_id").is_none(), "{own}");
    }
    // Local callers have no WordPress user.
    let (text, is_error) = call(&server, "buddyboss_list_friends", json!({})).await;
    assert!(is_error && text.contains("the caller's `id`"), "{text}");
}

#[test]
fn invalid_wordpress_settings_are_reported() {
    let report = |auth: &str, server: &str| {
        let text = format!("{auth}\n[servers.s]\nauth = {server}\n[servers.s.tools.t]\ntext = \"t\"\n");
        build_config(&TempFolder::new(), &text, ServeMode::Http).map(|_| ()).err().unwrap_or_default()
    };
    let plain = "[auth.a.wordpress]\nurl = \"http://example.com/wp-json\"";
    assert!(
        report(plain, "\"a\"").contains("passwords would be sent without TLS"),
        "{}",
        report(plain, "\"a\"")
    );
    let secure = "[auth.a.wordpress]\nurl = \"https://example.com/wp-json\"";
    assert_eq!(report(secure, "\"a\""), "");
    let both = format!("{secure}\n[auth.b]\nbasic = [{{ user = \"u\", password = \"${{X:-p}}\" }}]");
    assert!(
        report(&both, "[\"a\", \"b\"]").contains("cannot be used together"),
        "{}",
        report(&both, "[\"a\", \"b\"]")
    );
    let half = format!("{secure}\nuser = \"admin\"");
    assert!(report(&half, "\"a\"").contains("must be set together"), "{}", report(&half, "\"a\""));
}

/// With the same settings, clients stay connected; logins must not outlive the egress rules.
#[tokio::test(flavor = "multi_thread")]
async fn changed_egress_rules_change_the_server_settings() {
    let auth = "[auth.site.wordpress]\nurl = \"http://127.0.0.1:1/wp-json\"\n[servers.s]\nauth = \"site\"\n";
    let text = file("", auth);
    let settings = |text: &str| {
        build_config(&TempFolder::new(), text, ServeMode::Http).unwrap().remove(0).config.settings
    };
    let known = settings(&text);
    assert!(known == settings(&text));
    assert!(known != settings(&text.replace("[\"127.0.0.1\"]", "[\"127.0.0.1:1\"]")));
}
