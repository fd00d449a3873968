//! Sets the compiler version, target and profile that `toolgate` reports.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TOOLGATE_COMMIT");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(compiler).arg("--version").output().ok();
    let version = output.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.map_or_else(|| "unknown".to_owned(), |version| version.trim().to_owned());
    println!("cargo:rustc-env=TOOLGATE_RUSTC={version}");
    for (name, from) in [("TOOLGATE_TARGET", "TARGET"), ("TOOLGATE_PROFILE", "PROFILE")] {
        println!("cargo:rustc-env={name}={}", std::env::var(from).unwrap_or_default());
    }
}
