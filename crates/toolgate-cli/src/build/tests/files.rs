//! File resources, including group M of the hostile inputs.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn fixture() -> (TempFolder, Server) {
    let folder = TempFolder::new();
    folder.write("root/a.txt", "A\n");
    folder.write("root/sub/b.txt", "B\n");
    folder.write("root/with space é.md", "# C");
    folder.write("root/.hidden", "TOPSECRET");
    folder.write("root/picture.png", [0x89, b'P', b'N', b'G', 0xff]);
    folder.write("root/broken.txt", [b'a', 0xff, b'b']);
    folder.write("root-secret/s.txt", "TOPSECRET");
    let root = folder.path().join("root");
    symlink("/etc/passwd", root.join("link")).unwrap();
    symlink("/etc", root.join("dlink")).unwrap();
    symlink("../root-secret", root.join("out")).unwrap();
    symlink("sub/b.txt", root.join("inside")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(root.join("fifo")).status().unwrap();
    assert!(fifo.success());
    let big = std::fs::File::create(root.join("big.bin")).unwrap();
    big.set_len(1 << 30).unwrap();
    let server = server(
        &folder,
        r#"
        [servers.s.resources.docs]
        files = { root = "root", uri = "fx://files/{path}" }
        [servers.s.resources.one]
        file = "root/a.txt"
        uri = "fx://one"
        "#,
    );
    (folder, server)
}

async fn read(server: &Server, uri: &str) -> Result<Value, String> {
    server.read_resource(uri).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn files_are_listed_and_read() {
    let (_folder, server) = fixture();
    let mut listed: Vec<String> = server.resources().iter().map(|resource| resource.uri.clone()).collect();
    listed.sort();
    assert_eq!(
        listed,
        [
            "fx://files/a.txt",
            "fx://files/big.bin",
            "fx://files/broken.txt",
            "fx://files/picture.png",
            "fx://files/sub/b.txt",
            "fx://files/with%20space%20%C3%A9.md",
            "fx://one",
        ]
    );
    assert_eq!(read(&server, "fx://files/a.txt").await.unwrap()["contents"][0]["text"], "A\n");
    assert_eq!(read(&server, "fx://one").await.unwrap()["contents"][0]["text"], "A\n");
    let space = read(&server, "fx://files/with%20space%20%C3%A9.md").await.unwrap();
    assert_eq!(
        (&space["contents"][0]["text"], &space["contents"][0]["mimeType"]),
        (&json!("# C"), &json!("text/markdown"))
    );
    let picture = read(&server, "fx://files/picture.png").await.unwrap();
    assert_eq!(picture["contents"][0]["blob"], "iVBOR/8=");
    assert_eq!(picture["contents"][0]["mimeType"], "image/png");
}

#[tokio::test]
async fn m01_to_m08_files_outside_are_not_read_and_errors_are_the_same() {
    let (_folder, server) = fixture();
    let not_found = read(&server, "fx://files/never-was").await.unwrap_err();
    for path in [
        "../root-secret/s.txt",
        "sub/../../root-secret/s.txt",
        "..",
        ".",
        "./a.txt",
        "sub//b.txt",
        "%2e%2e/root-secret/s.txt",
        "%2e%2e%2froot-secret%2fs.txt",
        "..%2froot-secret%2fs.txt",
        "%252e%252e%252froot-secret%252fs.txt",
        "link",
        "dlink/passwd",
        "out/s.txt",
        "/etc/passwd",
        "//etc/passwd",
        "%2fetc%2fpasswd",
        "file:///etc/passwd",
        "/proc/self/environ",
        "a.txt%00.png",
        "a.txt%00",
        "a.txt%0a",
        "..\\root-secret\\s.txt",
        "%5c%5cevil%5cshare",
        "C:\\x",
        "a.txt:ads",
        "CON",
        "nul.txt",
        "com1",
        "a.txt.",
        "a.txt%20",
        "fifo",
        "sub",
        "sub/",
        ".hidden",
        "",
        &"x".repeat(5000),
        &"d/".repeat(300),
    ] {
        let uri = format!("fx://files/{path}");
        let message = read(&server, &uri).await.expect_err(path);
        let same = not_found.replace("fx://files/never-was", "");
        // A long URI is truncated in the message.
        assert!(
            message.replace(&uri, "") == same || path.len() > 255 && message.starts_with(&same),
            "{path}: {message}"
        );
    }
}

#[tokio::test]
async fn m03_a_link_that_stays_inside_is_followed() {
    let (_folder, server) = fixture();
    if cfg!(target_os = "linux") {
        assert_eq!(read(&server, "fx://files/inside").await.unwrap()["contents"][0]["text"], "B\n");
    }
}

#[tokio::test]
async fn m04_a_race_never_leads_outside() {
    let (folder, server) = fixture();
    let root = folder.path().join("root");
    std::fs::create_dir(root.join("keep")).unwrap();
    std::fs::write(root.join("keep/s.txt"), "INSIDE").unwrap();
    let (swapping, folder_path) = (root.clone(), folder.path().to_owned());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopping = std::sync::Arc::clone(&stop);
    let swapper = std::thread::spawn(move || {
        while !stopping.load(Ordering::Relaxed) {
            std::fs::rename(swapping.join("keep"), swapping.join("kept")).unwrap();
            symlink(folder_path.join("root-secret"), swapping.join("keep")).unwrap();
            std::fs::remove_file(swapping.join("keep")).unwrap();
            std::fs::rename(swapping.join("kept"), swapping.join("keep")).unwrap();
        }
    });
    let (mut n_inside, mut n_read) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(700) {
        n_read += 1;
        if let Ok(contents) = read(&server, "fx://files/keep/s.txt").await {
            assert_eq!(contents["contents"][0]["text"], "INSIDE");
            n_inside += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(n_inside > 0 && n_read > 100, "{n_inside} of {n_read}");
}

#[tokio::test]
async fn m09_m11_m14_large_unreadable_and_odd_files() {
    let (folder, server) = fixture();
    let started = Instant::now();
    let message = read(&server, "fx://files/big.bin").await.unwrap_err();
    assert!(message.contains("too large") && started.elapsed() < Duration::from_millis(500), "{message}");
    assert_eq!(read(&server, "fx://files/broken.txt").await.unwrap()["contents"][0]["blob"], "Yf9i");
    std::fs::remove_file(folder.path().join("root/a.txt")).unwrap();
    let gone = read(&server, "fx://files/a.txt").await.unwrap_err();
    assert!(!gone.contains("os error") && !gone.contains("root/"), "{gone}");
}

#[tokio::test]
async fn globs_select_files() {
    let folder = TempFolder::new();
    for name in ["a.md", "b.txt", "sub/c.md", "drafts/d.md"] {
        folder.write(&format!("root/{name}"), name);
    }
    let server = server(
        &folder,
        r#"
        [servers.s.resources.docs]
        files = { root = "root", uri = "docs:///{path}", glob = "**/*.md", exclude = "drafts/**", max_files = 1 }
        "#,
    );
    assert_eq!(server.resource_count(), 1, "the list is limited");
    assert!(read(&server, "docs:///sub/c.md").await.is_ok(), "files that are not listed can be read");
    assert!(read(&server, "docs:///b.txt").await.is_err());
    assert!(read(&server, "docs:///drafts/d.md").await.is_err());
}

#[test]
fn m12_many_files_are_found_quickly_and_in_order() {
    let folder = TempFolder::new();
    for n in 0..3000 {
        folder.write(&format!("root/{:02}/{n}.txt", n % 20), "x");
    }
    let server = server(&folder, r#"servers.s.resources.d.files = { root = "root", uri = "d:///{path}" }"#);
    let uris: Vec<String> = server.resources().iter().map(|resource| resource.uri.clone()).collect();
    assert_eq!(uris.len(), 3000);
    assert!(uris.is_sorted());
}

#[test]
fn changes_of_files_are_found() {
    use toolgate_sources::source::files::{Files, FilesSpec};

    let folder = TempFolder::new();
    for name in ["a", "b", "c"] {
        folder.write(name, name);
    }
    let spec =
        FilesSpec { root: folder.path().to_owned(), uri: "d:///{path}".into(), ..FilesSpec::default() };
    let files = Files::new(spec).unwrap();
    assert_eq!(files.refresh().len(), 3);
    assert_eq!(files.take_changes(), toolgate_sources::source::files::FileChanges::default());
    std::fs::remove_file(folder.path().join("b")).unwrap();
    folder.write("c", "longer");
    folder.write("aa", "new");
    let changes = files.take_changes();
    assert_eq!(changes.removed, ["d:///b"]);
    assert_eq!(changes.added.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["aa"]);
    assert_eq!(changes.changed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["c"]);
}

/// A user who can create a hard link in a folder could also copy the file there, so hard links are treated as ordinary
/// files.
#[tokio::test]
async fn m03_a_hard_link_is_a_file_of_its_folder() {
    let (folder, server) = fixture();
    let root = folder.path().join("root");
    folder.write("beside.txt", "shared");
    std::fs::hard_link(folder.path().join("beside.txt"), root.join("hard.txt")).unwrap();
    assert_eq!(read(&server, "fx://files/hard.txt").await.unwrap()["contents"][0]["text"], "shared");
    // A hard link to a pipe is rejected like the pipe, without blocking.
    std::fs::hard_link(root.join("fifo"), root.join("pipe.txt")).unwrap();
    let reading = tokio::time::timeout(Duration::from_secs(5), read(&server, "fx://files/pipe.txt"));
    assert!(reading.await.unwrap().is_err());
}

#[tokio::test]
async fn m10_odd_names_are_distinct_and_escaped() {
    let folder = TempFolder::new();
    let (composed, apart) = ("caf\u{e9}.txt", "cafe\u{301}.txt");
    folder.write(&format!("root/{composed}"), "one");
    folder.write(&format!("root/{apart}"), "two");
    folder.write("root/invoice\u{202e}fdp.txt", "turned");
    folder.write("root/zero\u{200b}width.txt", "hidden");
    let server =
        server(&folder, "[servers.s.resources.docs]\nfiles = { root = \"root\", uri = \"d:///{path}\" }\n");
    let listed = server.resources();
    let named =
        |name: &str| listed.iter().find(|resource| resource.name == name).map(|found| found.uri.clone());
    for (name, text) in [
        (composed, "one"),
        (apart, "two"),
        ("invoice\\u{202e}fdp.txt", "turned"),
        ("zero\\u{200b}width.txt", "hidden"),
    ] {
        let uri = named(name).unwrap_or_else(|| panic!("no {name}"));
        assert!(uri.is_ascii(), "{uri}");
        assert_eq!(read(&server, &uri).await.unwrap()["contents"][0]["text"], text, "{name}");
    }
}
