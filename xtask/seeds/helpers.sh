# What the rows of this directory are written with. `cargo xtask seeds` sets B (where the example listens that the rows
# are for, `boxlang` or `erlmcp`) and PROGRAM (its path).
J='Content-Type: application/json'
BX=$B/~bxai/mcp.bxm
RT=$B/~bxmcp/boxlang.bxm; TK='Authorization: Bearer your-token'
rpc(){ local u=$1 d=$2; shift 2; curl -sS -X POST "$u" -H "$J" "$@" -d "$d"; }
m(){ local u=$1 n=$2; shift 2; rpc "$u" "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$n\"}" "$@"; }
call(){ local u=$1 n=$2 a=$3; shift 3; rpc "$u" "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"$n\",\"arguments\":$a}}" "$@"; }
code(){ curl -sS -o /dev/null -w '%{http_code}' "$@"; }
hdr(){ curl -sS -o /dev/null -D - "$@" | tr -d '\r'; }

# Before 1.7, `jq -e` is content with no input at all. Nothing is never a right answer.
jq(){ local out rc; out=$(command jq "$@"); rc=$?; printf '%s\n' "$out"; test $rc = 0 -a -n "$out"; }

# The rows of the transport over stdio name a command that comes later, `toolgate stdio --config seedkit.toml`. The
# example has the same flags behind these three words.
toolgate(){ shift 3; "$PROGRAM" "$@"; }
# And the manual starts a script: `boxlang mcp-stdio.bxs`.
boxlang(){ shift; "$PROGRAM" "$@"; }

# A second example of the caller's own, on a port of its own: `own VARIABLE=value … && …$OWN…`.
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

# The same with the program, and a configuration whose lines are given: `serves '[servers.x]' … && …$OWN…`.
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

# Document 002. B is where the example `erlmcp` listens then.
ER=$B/erl/mcp
# Opens a session and prints its id.
sid(){ hdr -X POST $ER -H "$J" -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}' | sed -n 's/^mcp-session-id: //Ip'; }
# A stream of changes, of the session in SID. Where SID is empty, `curl` leaves the header out: then it is one of nobody.
sse(){ timeout ${2:-3} curl -sN "$1" -H 'Accept: text/event-stream' -H "Mcp-Session-Id: $SID" | tr -d '\r'; }
# What such a stream says while a command runs: `hears SECONDS COMMAND …`.
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

# Document 003. B is where the program listens then, with the services behind it in HUB_UPSTREAM. Each row comes from an
# address of its own, as a proxy would say, so that no row uses up the requests of another.
HUB=$B/api/mcp
if test -n "${HUB_UPSTREAM:-}"; then
  FROM=203.0.$((RANDOM % 250)).$((RANDOM % 250 + 1))
  curl(){ command curl -H "X-Forwarded-For: $FROM" "$@"; }
fi
# Document 004. B is where the program listens then, with examples/buddyboss.toml, and WP_URL is the site behind it. A real
# site is asked as WP_USER with the application password WP_PASSWORD.
WP=$B/wp-json/buddyboss-mcp/v1/mcp; WU=${WP_USER:-admin}:${WP_PASSWORD:-app-pass}
# The document's own names.
wp_names(){ URL=$WP; USER=${WU%%:*}; PASS=${WU#*:}; }
# Only the site of the tests remembers what it was asked, and can be changed: `real || …`.
real(){ ! curl -sf "$WP_URL/_seen" >/dev/null; }
# What the site heard because of a command: `heard COMMAND …`, as a list.
heard(){ curl -sf -X DELETE "$WP_URL/_seen" >/dev/null; "$@" >/dev/null; curl -sf "$WP_URL/_seen"; }
switch(){ curl -sf -X POST "$WP_URL/_switch" -d "$1" >/dev/null; }
# A program of the row's own, with the configuration from standard input: `own_file <<<"…" && …$OWN…`.
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
# The same for `check --live`, which logs in.
wp_live(){ wp_file '"core"' | sed 's/^capability = .*/&\nuser = "admin"\npassword = "${WP_PW}"/'; }
