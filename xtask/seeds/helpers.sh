# Shell functions for the rows of this directory. `cargo xtask seeds` sets B (the address of the example, `boxlang` or
# `erlmcp`) and PROGRAM (its path).
J='Content-Type: application/json'
BX=$B/~bxai/mcp.bxm
RT=$B/~bxmcp/boxlang.bxm; TK='Authorization: Bearer your-token'
rpc(){ local u=$1 d=$2; shift 2; curl -sS -X POST "$u" -H "$J" "$@" -d "$d"; }
m(){ local u=$1 n=$2; shift 2; rpc "$u" "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$n\"}" "$@"; }
call(){ local u=$1 n=$2 a=$3; shift 3; rpc "$u" "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"$n\",\"arguments\":$a}}" "$@"; }
code(){ curl -sS -o /dev/null -w '%{http_code}' "$@"; }
hdr(){ curl -sS -o /dev/null -D - "$@" | tr -d '\r'; }

# Before 1.7, `jq -e` succeeds without input. An empty response is never correct.
jq(){ local out rc; out=$(command jq "$@"); rc=$?; printf '%s\n' "$out"; test $rc = 0 -a -n "$out"; }

# The rows of the stdio transport use the command `toolgate stdio --config seedkit.toml`. The example has the same
# arguments after these three words.
toolgate(){ shift 3; "$PROGRAM" "$@"; }
# The manual starts a script: `boxlang mcp-stdio.bxs`.
boxlang(){ shift; "$PROGRAM" "$@"; }

# Starts another example for one row: `own VARIABLE=value … && …$OWN…`.
own(){
  OWN_LOG=$(mktemp ./own.XXXXXX)
  env "$@" "$PROGRAM" --http 127.0.0.1:0 2>"$OWN_LOG" & OWN_PID=$!
  trap 'kill -KILL $OWN_PID 2>/dev/null; rm -f "$OWN_LOG"*' EXIT
  for _ in $(seq 100); do
    OWN=$(sed -n 's|.*listening on \(http://[^ ]*\).*|\1|p' "$OWN_LOG")
    test -n "$OWN" && return 0
    sleep 0.05
  done
  return 1
}

# Starts the program with a configuration of these lines: `serves '[servers.x]' … && …$OWN…`.
serves(){
  OWN_LOG=$(mktemp ./own.XXXXXX)
  printf '%s\n' "$@" >"$OWN_LOG.toml"
  "$PROGRAM" serve "$OWN_LOG.toml" --listen 127.0.0.1:0 2>"$OWN_LOG" & OWN_PID=$!
  trap 'kill -KILL $OWN_PID 2>/dev/null; rm -f "$OWN_LOG"*' EXIT
  for _ in $(seq 100); do
    OWN=$(sed -n 's|.*listening on \(http://[^ ]*\).*|\1|p' "$OWN_LOG")
    test -n "$OWN" && return 0
    sleep 0.05
  done
  cat "$OWN_LOG"
  return 1
}

# The manual also writes requests without a body: `POST http://localhost/~bxai/mcp.bxm`.
POST(){ rpc "$1" '{"jsonrpc":"2.0","method":"tools/list","id":"1"}'; }

# Document 002. B is the address of the example `erlmcp`.
ER=$B/erl/mcp
# Opens a session and prints its id.
sid(){ hdr -X POST $ER -H "$J" -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}' | sed -n 's/^mcp-session-id: //Ip'; }
# The event stream of the session in SID. If SID is empty, `curl` omits the header, and the stream has no session.
sse(){ timeout ${2:-3} curl -sN "$1" -H 'Accept: text/event-stream' -H "Mcp-Session-Id: $SID" | tr -d '\r'; }
# Prints the events of such a stream while a command runs: `hears SECONDS COMMAND …`.
hears(){
  local log; log=$(mktemp ./heard.XXXXXX)
  sse $ER "$1" >"$log" & sleep .5
  "${@:2}" >/dev/null; wait; cat "$log"; rm -f "$log"
}
# With the session in SID, if there is one.
own_rpc(){ rpc $ER "$1" -H "Mcp-Session-Id: $SID" "${@:2}"; }
touch_config(){ own_rpc '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"touch_config","arguments":{}}}'; }
subscribe(){ own_rpc '{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"mcp://config"}}'; }
unsubscribe(){ own_rpc '{"jsonrpc":"2.0","id":7,"method":"resources/unsubscribe","params":{"uri":"mcp://config"}}'; }
# The messages of a stream.
events(){ tr -d '\r' | sed -n 's/^data: //p'; }

# Document 003. B is the address of the program, HUB_UPSTREAM that of its backend. Each row has its own client address in
# the headers of a proxy, so that rows do not share a rate limit.
HUB=$B/api/mcp
if test -n "${HUB_UPSTREAM:-}"; then
  FROM=203.0.$((RANDOM % 250)).$((RANDOM % 250 + 1))
  curl(){ command curl -H "X-Forwarded-For: $FROM" "$@"; }
fi
# Document 004. B is the address of the program with examples/buddyboss.toml, and WP_URL the site behind it. A real site is
# used as WP_USER with the application password WP_PASSWORD.
WP=$B/wp-json/buddyboss-mcp/v1/mcp; WU=${WP_USER:-admin}:${WP_PASSWORD:-app-pass}
# The names of the document.
wp_names(){ URL=$WP; USER=${WU%%:*}; PASS=${WU#*:}; }
# Only the test site records its requests, and can be changed: `real || …`.
real(){ ! curl -sf "$WP_URL/_seen" >/dev/null; }
# Prints the requests that the site received during a command: `heard COMMAND …`, as a list.
heard(){ curl -sf -X DELETE "$WP_URL/_seen" >/dev/null; "$@" >/dev/null; curl -sf "$WP_URL/_seen"; }
switch(){ curl -sf -X POST "$WP_URL/_switch" -d "$1" >/dev/null; }
# Starts the program for one row, with the configuration from standard input: `own_file <<<"…" && …$OWN…`.
own_file(){
  OWN_LOG=$(mktemp ./own.XXXXXX)
  cat >"$OWN_LOG.toml"
  "$PROGRAM" serve "$OWN_LOG.toml" --listen 127.0.0.1:0 2>"$OWN_LOG" & OWN_PID=$!
  trap 'kill -KILL $OWN_PID 2>/dev/null; rm -f "$OWN_LOG"*' EXIT
  for _ in $(seq 100); do
    OWN=$(sed -n 's|.*\(http://127.0.0.1:[0-9]*[^ ]*\).*|\1|p' "$OWN_LOG" | head -1)
    test -n "$OWN" && return 0
    sleep 0.05
  done
  return 1
}
# The configuration of the example, with other parts of the pack.
wp_file(){
  local access=${2:-}
  test -n "$access" || access='auth = { forward = true }'
  cat <<END
[security.egress]
allow = ["127.0.0.1"]
[connections.site]
http = "$WP_URL/wp-json"
$access
[auth.site.wordpress]
url = "$WP_URL/wp-json"
capability = "manage_options"
[servers.s]
dialect = "buddyboss"
auth = "site"
packs.buddyboss = { on = "site", phases = [$1] }
END
}
# The configuration for `check --live`, which logs in.
wp_live(){ wp_file '"core"' | sed 's/^capability = .*/&\nuser = "admin"\npassword = "${WP_PW}"/'; }
