# What the rows of this directory are written with. `cargo xtask seeds` sets B (where the example `boxlang` listens)
# and PROGRAM (its path).
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

# The manual also writes requests without a body: `POST http://localhost/~bxai/mcp.bxm`.
POST(){ rpc "$1" '{"jsonrpc":"2.0","method":"tools/list","id":"1"}'; }
