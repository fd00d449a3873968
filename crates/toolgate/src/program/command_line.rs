//! Parses the command line of a program.

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandLine {
    Help,
    Version,
    Serve { mode: ServeMode, name: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServeMode {
    Stdio,
    Http(String),
}

impl CommandLine {
    /// A name alone takes precedence over `--server`, and that over the environment variable.
    pub(super) fn parse(
        arguments: impl IntoIterator<Item = String>,
        from_env: Option<String>,
    ) -> Result<CommandLine, String> {
        let mut arguments = arguments.into_iter();
        let (mut mode, mut option, mut positional) = (None, None, None);
        let mut is_literal = false;
        while let Some(argument) = arguments.next() {
            if is_literal || !argument.starts_with('-') || argument == "-" {
                set_once(&mut positional, argument, "a server's name")?;
                continue;
            }
            let (key, value) = match argument.split_once('=') {
                Some((key, value)) if key.starts_with("--") => (key, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let has_value = value.is_some();
            let mut value = |example: &str| match value.clone().or_else(|| arguments.next()) {
                Some(value) => Ok(value),
                None => Err(format!("`{key}` needs a value, for example `{key} {example}`")),
            };
            match key {
                "--http" => {
                    set_once(&mut mode, ServeMode::Http(parse_address(&value(":8080")?)?), "how to serve")?
                }
                "--server" => set_once(&mut option, value("NAME")?, "`--server`")?,
                _ if has_value => return Err(format!("unknown option `{key}`, or it takes no value")),
                "--stdio" => set_once(&mut mode, ServeMode::Stdio, "how to serve")?,
                "--help" | "-h" => return Ok(CommandLine::Help),
                "--version" | "-V" => return Ok(CommandLine::Version),
                "--" => is_literal = true,
                _ => return Err(format!("unknown option `{argument}`")),
            }
        }
        let name = [positional, option, from_env].into_iter().flatten().find(|name| !name.trim().is_empty());
        let name = name.map(|name| name.trim().to_owned());
        Ok(CommandLine::Serve { mode: mode.unwrap_or(ServeMode::Stdio), name })
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{what} is given twice")),
    }
}

/// `8080` and `:8080` are ports on the loopback address.
fn parse_address(text: &str) -> Result<String, String> {
    let error = || format!("`{text}` is not an address such as `:8080` or `127.0.0.1:8080`");
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    // The host of an IPv6 address is in brackets.
    let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let port: u16 = port.parse().map_err(|_| error())?;
    match host {
        "" => Ok(format!("127.0.0.1:{port}")),
        _ if is_plain => Ok(format!("{host}:{port}")),
        _ => Err(error()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_line(line: &str, from_env: Option<&str>) -> Result<CommandLine, String> {
        CommandLine::parse(line.split_whitespace().map(str::to_owned), from_env.map(str::to_owned))
    }

    fn stdio(name: Option<&str>) -> CommandLine {
        CommandLine::Serve { mode: ServeMode::Stdio, name: name.map(str::to_owned) }
    }

    fn http(address: &str) -> CommandLine {
        CommandLine::Serve { mode: ServeMode::Http(address.into()), name: None }
    }

    #[test]
    fn a_command_line_selects_the_server_and_the_mode() {
        let cases = [
            ("", None, stdio(None)),
            ("--stdio", None, stdio(None)),
            ("--http :8080", None, http("127.0.0.1:8080")),
            ("--http=8080", None, http("127.0.0.1:8080")),
            ("--http 0.0.0.0:80", None, http("0.0.0.0:80")),
            ("--http [::1]:80", None, http("[::1]:80")),
            ("--http localhost:0", None, http("localhost:0")),
            ("--server a", Some("e"), stdio(Some("a"))),
            ("--server=a b", Some("e"), stdio(Some("b"))),
            ("", Some("e"), stdio(Some("e"))),
            ("", Some("  "), stdio(None)),
            ("--server=", Some("e"), stdio(Some("e"))),
            ("-- --odd", None, stdio(Some("--odd"))),
            ("--help", None, CommandLine::Help),
            ("-h", None, CommandLine::Help),
            ("a --version", None, CommandLine::Version),
        ];
        for (line, from_env, wanted) in cases {
            assert_eq!(parse_line(line, from_env), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn an_invalid_argument_is_named_in_the_error() {
        let cases = [
            ("--htpp :80", "unknown option `--htpp`"),
            ("-x", "unknown option `-x`"),
            ("--http", "`--http` needs a value"),
            ("--http nowhere", "`nowhere` is not an address"),
            ("--http ::1:80", "`::1:80` is not an address"),
            ("--http :70000", "`:70000` is not an address"),
            ("--stdio --http :80", "how to serve is given twice"),
            ("--stdio=yes", "takes no value"),
            ("a b", "a server's name is given twice"),
        ];
        for (line, wanted) in cases {
            let error = parse_line(line, None).unwrap_err();
            assert!(error.contains(wanted), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_command_line_causes_a_panic(arguments in proptest::collection::vec("[-=:a-z0-9\\[\\] ]{0,12}", 0..5)) {
            let _ = CommandLine::parse(arguments, None);
        }

        #[test]
        fn an_address_always_has_a_host_and_a_port(text in "\\PC{0,24}") {
            if let Ok(address) = parse_address(&text) {
                let (host, port) = address.rsplit_once(':').unwrap();
                prop_assert!(!host.is_empty() && port.parse::<u16>().is_ok());
            }
        }
    }
}
